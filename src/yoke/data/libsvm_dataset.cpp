#include "yoke/data/libsvm_dataset.h"

#include <algorithm>

#include "yoke/base/file.h"
#include "yoke/data/files.h"
#include "yoke/data/fit.h"
#include "yoke/data/formats/libsvm.h"

namespace yoke::data {
namespace {

constexpr std::string_view kHint =
    "Set data.dir to a folder with train.libsvm and test.libsvm, or to a file whose test samples are in the "
    "same name "
    "with 'test' for 'train', or with .t at its end.";

class LibsvmDataset : public Dataset {
 public:
  LibsvmDataset(SparseRows rows, SampleSpec spec) : rows_(std::move(rows)), spec_(std::move(spec)) {}

  int64_t size() const override { return rows_.rows(); }
  SampleSpec spec() const override { return spec_; }

  Batch gather(std::span<const int64_t> indices) const override {
    check_indices(indices, size());
    int64_t elements = 0;
    for (int64_t i : indices) elements += end(i) - begin(i);
    const auto count = static_cast<int64_t>(indices.size());
    Batch batch{{torch::empty({elements}, torch::kInt64), torch::empty({elements}, torch::kFloat32),
                 torch::empty({count}, torch::kInt64)},
                torch::empty({count}, torch::kFloat32),
                count};
    auto* index = batch.inputs[0].data_ptr<int64_t>();
    auto* value = batch.inputs[1].data_ptr<float>();
    auto* offset = batch.inputs[2].data_ptr<int64_t>();
    auto* target = batch.target.data_ptr<float>();
    int64_t at = 0;
    for (int64_t i : indices) {
      *offset++ = at;
      *target++ = rows_.labels[static_cast<size_t>(i)];
      std::copy(rows_.indices.begin() + begin(i), rows_.indices.begin() + end(i), index + at);
      std::copy(rows_.values.begin() + begin(i), rows_.values.begin() + end(i), value + at);
      at += end(i) - begin(i);
    }
    return batch;
  }

 private:
  int64_t begin(int64_t row) const { return rows_.offsets[static_cast<size_t>(row)]; }
  int64_t end(int64_t row) const { return rows_.offsets[static_cast<size_t>(row) + 1]; }

  SparseRows rows_;
  SampleSpec spec_;
};

}  // namespace

std::unique_ptr<Dataset> open_libsvm(const DataOptions& options, Split split, const SampleSpec& wanted,
                                     uint64_t) {
  const std::string name = split == Split::kTrain ? "train.libsvm" : "test.libsvm";
  if (wanted.kind != SampleKind::kSparse) throw_other_kind(options, "sparse vectors", wanted);
  const std::filesystem::path path = find_split(options, split, {name}, "test", kHint);
  const MappedFile file(path);
  return std::make_unique<LibsvmDataset>(
      parse_libsvm(file.view(), wanted.shape.at(0), path.string(), options.limit), wanted);
}

}  // namespace yoke::data
