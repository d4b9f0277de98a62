// cuBLASLt is column-major: a row-major matrix [rows, columns] is its matrix columns x rows. So out' = right'
// * left', cuBLASLt's A is our right operand, and its bias, one number for each row of out', is one for each
// of our columns.
#include "yoke/compute/lt_matmul_cuda.h"

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include "yoke/compute/lt_choice_cuda.h"

namespace yoke::compute::cuda {
namespace {

constexpr int kProposals = 16;
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
    case Epilogue::kGeluSlope:
      return CUBLASLT_EPILOGUE_DGELU;
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
    if (p.epilogue == Epilogue::kBias || p.epilogue == Epilogue::kBiasGelu) {
      set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, p.bias);
      set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, type_of(p.type));
    }
    if (p.epilogue == Epilogue::kBiasGelu || p.epilogue == Epilogue::kGeluSlope) {
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
    auto run = [&](const cublasLtMatmulAlgo_t& algorithm) {
      return launch(p, description, algorithm, lt, workspace, stream);
    };
    taken = timed ? fastest_algorithm(found, run, stream) : found[0].algo;
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
