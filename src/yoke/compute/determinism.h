// train.deterministic: bit-identical results.
#pragma once

namespace yoke::compute {

// Process-wide. On: LibTorch uses algorithms with a fixed order of summation and throws if an operator has
// none; cuDNN selects without timing; cuBLAS gets a fixed workspace (sets CUBLAS_WORKSPACE_CONFIG to :4096:8,
// which is read once). Call it before the first matrix product on CUDA. Off: cuDNN times its algorithms.
void set_deterministic(bool on);

bool is_deterministic();

}  // namespace yoke::compute
