// cuBLASLt is column-major: a row-major matrix [rows, columns] is its matrix columns x rows. So out' = right'
// * left', cuBLASLt's A is our right operand, and its bias, one number for each row of out', is one for each
// of our columns.
#include "yoke/compute/lt_matmul_cuda.h"

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

namespace yoke::compute::cuda {
namespace {

constexpr int kProposals = 16;
constexpr int kTimedRuns = 2, kRounds = 3;
constexpr float kNearly = 1.06f;
constexpr size_t kFinalists = 4;
constexpr float kRowMs = 10, kLongestRow = 64;
constexpr float kNever = std::numeric_limits<float>::infinity();
constexpr uintptr_t kFineAlignment = 256, kLeastAlignment = 16;

void check(cublasStatus_t status, const char* what) {
  if (status != CUBLAS_STATUS_SUCCESS)
    throw std::runtime_error(std::string("cuBLASLt: ") + what + ": " + cublasLtGetStatusString(status));
}

void check(cudaError_t error, const char* what) {
  if (error != cudaSuccess) throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(error));
}

cudaDataType_t type_of(kernels::CudaNumber number) {
  switch (number) {
    case kernels::CudaNumber::kFloat:
      return CUDA_R_32F;
    case kernels::CudaNumber::kBf16:
      return CUDA_R_16BF;
    default:
      return CUDA_R_16F;
  }
}

cublasLtEpilogue_t code_of(Epilogue epilogue) {
  switch (epilogue) {
    case Epilogue::kBias:
      return CUBLASLT_EPILOGUE_BIAS;
    case Epilogue::kBiasGelu:
      return CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
    default:
      return CUBLASLT_EPILOGUE_DEFAULT;
  }
}

struct Layout {
  cublasLtMatrixLayout_t handle = nullptr;
  Layout(cudaDataType_t type, int64_t rows, int64_t columns) {
    check(cublasLtMatrixLayoutCreate(&handle, type, static_cast<uint64_t>(rows),
                                     static_cast<uint64_t>(columns), rows),
          "layout");
  }
  ~Layout() { cublasLtMatrixLayoutDestroy(handle); }
  Layout(const Layout&) = delete;
  Layout& operator=(const Layout&) = delete;
};

// The product described for cuBLASLt.
class Description {
 public:
  explicit Description(const LtProduct& p)
      : a(type_of(p.type), p.right_transposed ? p.inner : p.columns,
          p.right_transposed ? p.columns : p.inner),
        b(type_of(p.type), p.left_transposed ? p.rows : p.inner, p.left_transposed ? p.inner : p.rows),
        d(type_of(p.type), p.columns, p.rows) {
    check(cublasLtMatmulDescCreate(&operation, CUBLAS_COMPUTE_32F, CUDA_R_32F), "description");
    set(CUBLASLT_MATMUL_DESC_TRANSA, p.right_transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(CUBLASLT_MATMUL_DESC_TRANSB, p.left_transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, code_of(p.epilogue));
    if (p.epilogue != Epilogue::kNone) {
      set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, p.bias);
      set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, type_of(p.type));
    }
    if (p.epilogue == Epilogue::kBiasGelu) {
      set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, p.z);
      set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, p.columns);
      set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE, type_of(p.type));
    }
  }
  ~Description() { cublasLtMatmulDescDestroy(operation); }
  Description(const Description&) = delete;
  Description& operator=(const Description&) = delete;

  cublasLtMatmulDesc_t operation = nullptr;
  Layout a, b, d;

 private:
  template <class Value>
  void set(cublasLtMatmulDescAttributes_t attribute, const Value& value) {
    check(cublasLtMatmulDescSetAttribute(operation, attribute, &value, sizeof(value)), "attribute");
  }
};

uintptr_t alignment_of(const LtProduct& p) {
  uintptr_t all = 0;
  for (const void* pointer :
       {p.left, p.right, static_cast<const void*>(p.out), p.added, p.bias, static_cast<const void*>(p.z)})
    all |= reinterpret_cast<uintptr_t>(pointer);
  return all % kFineAlignment == 0 ? kFineAlignment : kLeastAlignment;
}

std::vector<cublasLtMatmulHeuristicResult_t> proposals_for(const LtProduct& p, const Description& description,
                                                           cublasLtHandle_t handle) {
  cublasLtMatmulPreference_t preference = nullptr;
  check(cublasLtMatmulPreferenceCreate(&preference), "preference");
  std::unique_ptr<cublasLtMatmulPreferenceOpaque_t, cublasStatus_t (*)(cublasLtMatmulPreference_t)> owner(
      preference, cublasLtMatmulPreferenceDestroy);
  auto set = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
    check(cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof(value)), "preference");
  };
  set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kLtWorkspace);
  auto alignment = static_cast<uint32_t>(alignment_of(p));
  for (auto attribute :
       {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
    set(attribute, alignment);
  std::vector<cublasLtMatmulHeuristicResult_t> found(kProposals);
  int count = 0;
  cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
      handle, description.operation, description.a.handle, description.b.handle, description.d.handle,
      description.d.handle, preference, kProposals, found.data(), &count);
  found.resize(status == CUBLAS_STATUS_SUCCESS ? static_cast<size_t>(count) : 0);
  std::erase_if(found, [](const auto& one) { return one.state != CUBLAS_STATUS_SUCCESS; });
  return found;
}

cublasStatus_t launch(const LtProduct& p, const Description& description,
                      const cublasLtMatmulAlgo_t& algorithm, cublasLtHandle_t handle, void* workspace,
                      cudaStream_t stream) {
  float one = 1, beta = p.added != nullptr ? 1.0f : 0.0f;
  return cublasLtMatmul(handle, description.operation, &one, p.right, description.a.handle, p.left,
                        description.b.handle, &beta, p.added != nullptr ? p.added : p.out,
                        description.d.handle, p.out, description.d.handle, &algorithm, workspace,
                        kLtWorkspace, stream);
}

// Timing of algorithms for one product.
class Trial {
 public:
  Trial(const LtProduct& p, const Description& description, cublasLtHandle_t handle, void* workspace,
        cudaStream_t stream)
      : product_(p), description_(description), handle_(handle), workspace_(workspace), stream_(stream) {
    check(cudaEventCreate(&begin_), "event");
    check(cudaEventCreate(&end_), "event");
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
      if (launch(product_, description_, algorithm, handle_, workspace_, stream_) != CUBLAS_STATUS_SUCCESS)
        return kNever;
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
  const LtProduct& product_;
  const Description& description_;
  cublasLtHandle_t handle_;
  void* workspace_;
  cudaStream_t stream_;
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
};

// Indices of the algorithms that are nearly as fast as the fastest, that one first.
std::vector<size_t> finalists_of(const std::vector<float>& alone) {
  std::vector<size_t> order(alone.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return alone[a] < alone[b]; });
  std::erase_if(order, [&](size_t i) { return alone[i] > kNearly * alone[order[0]]; });
  order.resize(std::min(order.size(), kFinalists));
  return order;
}

// Alternates the proposals, so that a dropping clock rate affects all of them. A long row of products makes
// the GPU lower its clock to limit its power, and that slows the algorithms down unequally: those that are
// nearly as fast alone are compared in such rows.
cublasLtMatmulAlgo_t fastest_of(const std::vector<cublasLtMatmulHeuristicResult_t>& found, Trial& trial) {
  std::vector<float> alone(found.size(), 0.0f);
  for (int round = 0; round < kRounds; ++round)
    for (size_t i = 0; i < found.size(); ++i) alone[i] += trial.time_alone(found[i].algo) / kRounds;
  const std::vector<size_t> finalists = finalists_of(alone);
  if (finalists.size() == 1) return found[finalists[0]].algo;
  const int launches = static_cast<int>(std::clamp(kRowMs / alone[finalists[0]], 1.0f, kLongestRow));
  std::vector<float> in_rows(finalists.size(), 0.0f);
  for (int round = 0; round <= kRounds; ++round) {
    for (size_t i = 0; i < finalists.size(); ++i) {
      const float spent = trial.time(found[finalists[i]].algo, launches);
      if (round > 0) in_rows[i] += spent;
    }
  }
  const auto best = std::min_element(in_rows.begin(), in_rows.end()) - in_rows.begin();
  return found[finalists[static_cast<size_t>(best)]].algo;
}

// Key of a choice.
using Key = std::tuple<int, kernels::CudaNumber, int64_t, int64_t, int64_t, bool, bool, Epilogue, bool,
                       uintptr_t, bool>;

Key key_of(const LtProduct& p, bool search) {
  int device = 0;
  check(cudaGetDevice(&device), "device");
  return {device,
          p.type,
          p.rows,
          p.columns,
          p.inner,
          p.left_transposed,
          p.right_transposed,
          p.epilogue,
          p.added != nullptr,
          alignment_of(p),
          search};
}

struct Choices {
  std::mutex mutex;
  std::map<Key, cublasLtMatmulAlgo_t> taken;
  std::map<Key, bool> possible;
};

Choices& choices() {
  static Choices all;
  return all;
}

bool is_captured(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  check(cudaStreamIsCapturing(stream, &status), "capture status");
  return status != cudaStreamCaptureStatusNone;
}

}  // namespace

void lt_multiply(const LtProduct& p, void* handle, void* workspace, bool search, void* stream_pointer) {
  auto* lt = static_cast<cublasLtHandle_t>(handle);
  auto* stream = static_cast<cudaStream_t>(stream_pointer);
  Description description(p);
  Key key = key_of(p, search);
  Choices& all = choices();
  auto taken = [&]() -> std::optional<cublasLtMatmulAlgo_t> {
    std::lock_guard lock(all.mutex);
    auto found = all.taken.find(key);
    return found == all.taken.end() ? std::nullopt : std::optional(found->second);
  }();
  if (!taken) {
    // Not under the lock: the timed work may wait for another rank, which may be a thread that needs the
    // lock.
    auto found = proposals_for(p, description, lt);
    if (found.empty()) throw std::runtime_error("cuBLASLt: no algorithm for this product");
    bool timed = search && !is_captured(stream);
    taken = found[0].algo;
    if (timed) {
      Trial trial(p, description, lt, workspace, stream);
      taken = fastest_of(found, trial);
    }
    std::lock_guard lock(all.mutex);
    if (timed || !search) all.taken.emplace(key, *taken);
  }
  check(launch(p, description, *taken, lt, workspace, stream), "product");
}

bool lt_can_multiply(const LtProduct& p, void* handle) {
  Key key = key_of(p, /*search=*/false);
  Choices& all = choices();
  std::lock_guard lock(all.mutex);
  auto known = all.possible.find(key);
  if (known != all.possible.end()) return known->second;
  Description description(p);
  bool possible = !proposals_for(p, description, static_cast<cublasLtHandle_t>(handle)).empty();
  all.possible.emplace(key, possible);
  return possible;
}

}  // namespace yoke::compute::cuda
