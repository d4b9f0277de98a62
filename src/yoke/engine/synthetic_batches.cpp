#include "yoke/engine/synthetic_batches.h"

#include <numeric>

#include "yoke/data/dataset.h"

namespace yoke::engine {

std::vector<data::Batch> synthetic_batches(const Worker& worker, int64_t batch_size, uint64_t seed,
                                           int64_t count) {
  data::DataOptions options;
  options.name = "synthetic";
  options.samples = count * batch_size;
  auto dataset = data::open(options, data::Split::kTrain, worker.model.sample, seed);
  std::vector<data::Batch> batches;
  std::vector<int64_t> indices(static_cast<size_t>(batch_size));
  for (int64_t i = 0; i < count; ++i) {
    std::iota(indices.begin(), indices.end(), i * batch_size);
    batches.push_back(dataset->gather(indices));
    for (torch::Tensor& input : batches.back().inputs) input = worker.place(input);
    batches.back().target = batches.back().target.to(worker.device);
  }
  return batches;
}

}  // namespace yoke::engine
