// Whether this build has CUDA kernels.
#pragma once

namespace yoke::kernels {

// False in builds without a CUDA compiler: then none of the functions in this folder may be called.
bool have_cuda_kernels();

}  // namespace yoke::kernels
