#include "yoke/data/image_dataset.h"

#include "yoke/base/error.h"
#include "yoke/data/fit.h"

namespace yoke::data {
namespace {

// Value of each byte: (x / 255 - mean) / deviation in float32, with torchvision's order of operations.
using Table = std::array<float, 256>;

Table make_table(double mean, double deviation) {
  Table table;
  for (size_t x = 0; x < table.size(); ++x) {
    table[x] = (static_cast<float>(x) / 255.0f - static_cast<float>(mean)) / static_cast<float>(deviation);
  }
  return table;
}

class ImageDataset : public Dataset {
 public:
  ImageDataset(ByteImages images, SampleSpec spec, int64_t size)
      : images_(std::move(images)), spec_(std::move(spec)), size_(size) {
    plane_ = static_cast<size_t>(images_.spec.shape[1] * images_.spec.shape[2]);
    for (size_t c = 0; c < images_.mean.size(); ++c) {
      tables_.push_back(make_table(images_.mean[c], images_.deviation[c]));
    }
  }

  int64_t size() const override { return size_; }
  SampleSpec spec() const override { return spec_; }
  std::vector<std::string> class_names() const override { return images_.class_names; }

  Batch gather(std::span<const int64_t> indices) const override {
    check_indices(indices, size_);
    const auto count = static_cast<int64_t>(indices.size());
    std::vector<int64_t> shape{count};
    shape.insert(shape.end(), spec_.shape.begin(), spec_.shape.end());
    Batch batch{{torch::empty(shape, torch::kFloat32)}, torch::empty({count}, torch::kInt64), count};
    float* out = batch.inputs[0].data_ptr<float>();
    auto* target = batch.target.data_ptr<int64_t>();
    for (int64_t index : indices) {
      const auto i = static_cast<size_t>(index);
      *target++ = images_.labels[i];
      out = write_image(i, out);
    }
    return batch;
  }

 private:
  float* write_image(size_t i, float* out) const {
    const auto* pixel =
        reinterpret_cast<const uint8_t*>(images_.bytes.data()) + images_.start + i * images_.stride;
    for (const Table& table : tables_) {
      for (size_t p = 0; p < plane_; ++p) *out++ = table[*pixel++];
    }
    return out;
  }

  ByteImages images_;
  SampleSpec spec_;
  int64_t size_;
  size_t plane_;
  std::vector<Table> tables_;  // one per channel
};

}  // namespace

std::unique_ptr<Dataset> make_image_dataset(ByteImages images, const DataOptions& options,
                                            const SampleSpec& wanted) {
  YOKE_CHECK(images.mean.size() == static_cast<size_t>(images.spec.shape[0]), "one mean for each channel");
  SampleSpec have = images.spec;
  if (wanted.kind == SampleKind::kVector) {
    have = {SampleKind::kVector, {have.shape[0] * have.shape[1] * have.shape[2]}, have.classes};
  }
  if (have != wanted) throw_mismatch(options, have, wanted);
  const int64_t size = limited(static_cast<int64_t>(images.labels.size()), options);
  return std::make_unique<ImageDataset>(std::move(images), std::move(have), size);
}

}  // namespace yoke::data
