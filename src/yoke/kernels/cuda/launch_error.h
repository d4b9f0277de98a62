// For CUDA sources, which do without fmt.
#pragma once

namespace yoke::kernels {

// Throws: a kernel could not be launched.
[[noreturn]] void throw_launch_error(const char* kernel, const char* reason);

}  // namespace yoke::kernels
