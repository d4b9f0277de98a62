// What differs between the LibTorch versions Yoke compiles with (2.10 and later).
#pragma once

#include <ATen/Context.h>
#include <c10/util/Exception.h>

namespace yoke::compute {

// Whether fp32 matrix products and convolutions on CUDA may round their inputs to tf32.
//
// LibTorch has an older and a newer set of switches for this and refuses to compute where they disagree. The
// older setters write both in every version so far, and say once that they are old: that is kept quiet here.
inline void allow_tf32(bool allowed) {
  struct Quiet : c10::WarningHandler {
    void process(const c10::Warning&) override {}
  } quiet;
  c10::WarningUtils::WarningHandlerGuard guard(&quiet);
  at::globalContext().setAllowTF32CuBLAS(allowed);
  at::globalContext().setAllowTF32CuDNN(allowed);
}

}  // namespace yoke::compute
