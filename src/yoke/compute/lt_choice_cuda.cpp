#include "yoke/compute/lt_choice_cuda.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <stdexcept>

namespace yoke::compute::cuda {
namespace {

constexpr int kTimedRuns = 2, kRounds = 3;
constexpr float kNearly = 1.06f;
constexpr size_t kFinalists = 4;
constexpr float kRowMs = 10, kLongestRow = 64;
constexpr float kNever = std::numeric_limits<float>::infinity();

using Launch = std::function<cublasStatus_t(const cublasLtMatmulAlgo_t&)>;

class Trial {
 public:
  Trial(const Launch& launch, cudaStream_t stream) : launch_(launch), stream_(stream) {
    if (cudaEventCreate(&begin_) != cudaSuccess || cudaEventCreate(&end_) != cudaSuccess)
      throw std::runtime_error("cuBLASLt: no events to time its algorithms");
  }
  ~Trial() {
    cudaEventDestroy(begin_);
    cudaEventDestroy(end_);
  }
  Trial(const Trial&) = delete;
  Trial& operator=(const Trial&) = delete;

  // Milliseconds per launch of `launches` in a row; infinity if it fails.
  float time(const cublasLtMatmulAlgo_t& algorithm, int launches) {
    cudaEventRecord(begin_, stream_);
    for (int i = 0; i < launches; ++i)
      if (launch_(algorithm) != CUBLAS_STATUS_SUCCESS) return kNever;
    cudaEventRecord(end_, stream_);
    float spent = 0;
    if (cudaEventSynchronize(end_) != cudaSuccess ||
        cudaEventElapsedTime(&spent, begin_, end_) != cudaSuccess)
      return kNever;
    return spent / static_cast<float>(launches);
  }

  // The fastest of a few single launches after one that is not counted.
  float time_alone(const cublasLtMatmulAlgo_t& algorithm) {
    float best = time(algorithm, 1) == kNever ? kNever : time(algorithm, 1);
    for (int run = 1; run < kTimedRuns && best < kNever; ++run) best = std::min(best, time(algorithm, 1));
    return best;
  }

 private:
  const Launch& launch_;
  cudaStream_t stream_;
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
};

// Indices of the algorithms that are nearly as fast as the fastest, that one first.
std::vector<size_t> finalists_of(const std::vector<float>& alone) {
  std::vector<size_t> order(alone.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return alone[a] < alone[b]; });
  const float limit = kNearly * alone[order[0]];
  std::erase_if(order, [&](size_t i) { return alone[i] > limit; });
  order.resize(std::min(order.size(), kFinalists));
  return order;
}

}  // namespace

// Alternates the proposals, so that a dropping clock rate affects all of them. A long row of products makes
// the GPU lower its clock to limit its power, and that slows the algorithms down unequally: those that are
// nearly as fast alone are compared in such rows.
cublasLtMatmulAlgo_t fastest_algorithm(const LtProposals& proposals, const Launch& launch,
                                       cudaStream_t stream) {
  Trial trial(launch, stream);
  std::vector<float> alone(proposals.size(), 0.0f);
  for (int round = 0; round < kRounds; ++round)
    for (size_t i = 0; i < proposals.size(); ++i) alone[i] += trial.time_alone(proposals[i].algo) / kRounds;
  const std::vector<size_t> finalists = finalists_of(alone);
  if (finalists.size() == 1) return proposals[finalists[0]].algo;
  const int launches = static_cast<int>(std::clamp(kRowMs / alone[finalists[0]], 1.0f, kLongestRow));
  std::vector<float> in_rows(finalists.size(), 0.0f);
  for (int round = 0; round <= kRounds; ++round) {
    for (size_t i = 0; i < finalists.size(); ++i) {
      const float spent = trial.time(proposals[finalists[i]].algo, launches);
      if (round > 0) in_rows[i] += spent;
    }
  }
  const auto best = std::min_element(in_rows.begin(), in_rows.end()) - in_rows.begin();
  return proposals[finalists[static_cast<size_t>(best)]].algo;
}

}  // namespace yoke::compute::cuda
