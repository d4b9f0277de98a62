// train.deterministic: results that repeat bit by bit.
#pragma once

namespace yoke::compute {

// For the whole process. On: LibTorch takes algorithms whose sums have a fixed order and throws where an
// operator has none; cuDNN chooses without timing; cuBLAS gets a fixed workspace (CUBLAS_WORKSPACE_CONFIG is
// set to :4096:8, which it reads once). Requires: called before the first matrix product on CUDA. Off: cuDNN
// times its algorithms.
void set_deterministic(bool on);

bool is_deterministic();

}  // namespace yoke::compute
