#include "yoke/data/shapes_only.h"

#include "yoke/base/error.h"
#include "yoke/data/fit.h"

namespace yoke::data {
namespace {

class ShapesOnly : public Dataset {
 public:
  explicit ShapesOnly(const Dataset& dataset)
      : spec_(dataset.spec()), size_(dataset.size()), names_(dataset.class_names()) {
    YOKE_CHECK(spec_.kind != SampleKind::kSparse && size_ > 0, "samples without a common shape: {} of {}",
               size_, to_string(spec_));
    const int64_t first = 0;
    one_ = without_values(dataset.gather({&first, 1}), 1);
  }

  int64_t size() const override { return size_; }
  SampleSpec spec() const override { return spec_; }
  std::vector<std::string> class_names() const override { return names_; }
  Batch gather(std::span<const int64_t> indices) const override {
    check_indices(indices, size_);
    return without_values(one_, static_cast<int64_t>(indices.size()));
  }

 private:
  static torch::Tensor without_values(const torch::Tensor& tensor, int64_t rows) {
    std::vector<int64_t> sizes = tensor.sizes().vec();
    sizes.at(0) = rows;
    return torch::empty(sizes, torch::TensorOptions(tensor.scalar_type()).device(torch::kMeta));
  }
  static Batch without_values(const Batch& batch, int64_t rows) {
    Batch shapes{{}, without_values(batch.target, rows), rows};
    for (const torch::Tensor& input : batch.inputs) shapes.inputs.push_back(without_values(input, rows));
    return shapes;
  }

  SampleSpec spec_;
  int64_t size_;
  std::vector<std::string> names_;
  Batch one_;
};

}  // namespace

std::unique_ptr<Dataset> shapes_only(const Dataset& dataset) {
  return std::make_unique<ShapesOnly>(dataset);
}

}  // namespace yoke::data
