// For CUDA sources, which do not use fmt.
#pragma once

namespace yoke::kernels {

// Throws Error with kInternal: a kernel could not be launched.
[[noreturn]] void throw_launch_error(const char* kernel, const char* reason);

}  // namespace yoke::kernels
