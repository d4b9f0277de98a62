// Differences between the supported LibTorch versions (2.10 and later).
#pragma once

#include <ATen/Context.h>
#include <c10/util/Exception.h>

namespace yoke::compute {

// Whether fp32 matrix products and convolutions on CUDA may round their inputs to tf32.
//
// LibTorch has an old and a new set of switches for this and refuses to compute if they disagree. The old
// setters write both in every version so far, and warn once that they are deprecated: that warning is
// suppressed here.
inline void allow_tf32(bool allowed) {
  struct Quiet : c10::WarningHandler {
    void process(const c10::Warning&) override {}
  } quiet;
  c10::WarningUtils::WarningHandlerGuard guard(&quiet);
  at::globalContext().setAllowTF32CuBLAS(allowed);
  at::globalContext().setAllowTF32CuDNN(allowed);
}

}  // namespace yoke::compute
