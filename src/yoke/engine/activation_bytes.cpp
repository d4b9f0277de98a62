#include "yoke/engine/activation_bytes.h"

#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <numeric>

#include "yoke/checkpoint/random_state.h"
#include "yoke/compute/precision.h"
#include "yoke/data/dataset.h"

namespace yoke::engine {
namespace {

// Adds up what the allocators of this thread hand out and take back.
class AllocationCounter : public c10::MemoryReportingInfoBase {
 public:
  void reportMemoryUsage(void* /*pointer*/, int64_t size, size_t /*total*/, size_t /*reserved*/, c10::Device /*device*/) override {
    bytes_ += size;
  }
  bool memoryProfilingEnabled() const override { return true; }
  int64_t bytes() const { return bytes_; }

 private:
  int64_t bytes_ = 0;
};

// BatchNorm's statistics and the generator must not notice the trial run.
class Unnoticed {
 public:
  explicit Unnoticed(const Worker& worker) : worker_(worker), random_(checkpoint::random_state(worker.device)) {
    for (const torch::Tensor& buffer : worker.model.module->buffers()) saved_.push_back(buffer.clone());
  }
  ~Unnoticed() {
    torch::NoGradGuard no_grad;
    std::vector<torch::Tensor> buffers = worker_.model.module->buffers();
    for (size_t i = 0; i < buffers.size(); ++i) buffers[i].copy_(saved_[i]);
    checkpoint::set_random_state(random_, worker_.device);
  }

 private:
  const Worker& worker_;
  nlohmann::json random_;
  std::vector<torch::Tensor> saved_;
};

data::Batch synthetic_batch(const Worker& worker, int64_t batch_size) {
  data::DataOptions options;
  options.samples = batch_size;
  auto dataset = data::open(options, data::Split::kTrain, worker.model.sample, /*seed=*/1);
  std::vector<int64_t> indices(static_cast<size_t>(batch_size));
  std::iota(indices.begin(), indices.end(), 0);
  return dataset->gather(indices);
}

}  // namespace

std::vector<int64_t> activation_bytes(const Worker& worker, const WorkerOptions& options) {
  if (options.compute.recompute.rfind("budget:", 0) != 0) return std::vector<int64_t>(worker.model.blocks.size(), 1);
  Unnoticed unnoticed(worker);
  models::Tensors values;
  for (const torch::Tensor& input : synthetic_batch(worker, options.batch_size).inputs) values.push_back(worker.place(input));
  auto counter = std::make_shared<AllocationCounter>();
  c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, counter);
  AutocastGuard autocast(worker.device.type(), worker.autocast);
  std::vector<int64_t> bytes;
  std::vector<models::Tensors> keep_graph_alive;
  for (const models::Block& block : worker.model.blocks) {
    int64_t before = counter->bytes();
    values = block.forward(values);
    keep_graph_alive.push_back(values);
    bytes.push_back(std::max<int64_t>(1, counter->bytes() - before));
  }
  return bytes;
}

}  // namespace yoke::engine
