#include "yoke/compute/determinism.h"

#include <ATen/Context.h>
#include <c10/util/env.h>

namespace yoke::compute {

void set_deterministic(bool on) {
  at::Context& context = at::globalContext();
  // With several streams and no fixed workspace, cuBLAS may use another algorithm in the next run.
  if (on) c10::utils::set_env("CUBLAS_WORKSPACE_CONFIG", ":4096:8");
  context.setDeterministicAlgorithms(on, /*warn_only=*/false);
  context.setDeterministicCuDNN(on);
  context.setBenchmarkCuDNN(!on);
  // Would fill every new tensor with NaN: a pass over memory that changes none of our results.
  context.setDeterministicFillUninitializedMemory(false);
}

bool is_deterministic() {
  return at::globalContext().deterministicAlgorithms();
}

}  // namespace yoke::compute
