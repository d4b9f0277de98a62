// The communication hooks in the box; make_hook() chooses among them. docs/design/data_parallel.md has their
// formulas.
//
// All: every rank gets the same bits; a gradient that is not finite on one rank is not finite on any
// afterwards; what compression leaves out of this step is remembered per bucket and added to the next one
// (not by the casts); a bucket with a gradient that is not finite leaves its memory as it was. Gradients may
// be on any device; `choose` is for tests.
#pragma once

#include <torch/types.h>

#include <memory>

#include "yoke/parallel/ddp/comm_hook.h"
#include "yoke/parallel/ddp/hooks/packing.h"

namespace yoke::parallel {

// Summed in `type`, divided first so that the sum overflows no earlier than one rank's gradient.
std::shared_ptr<CommHook> make_cast_hook(torch::ScalarType type);

// Vogels, Karimireddy, Jaggi 2019: matrices as products of two thin ones of `rank` columns.
std::shared_ptr<CommHook> make_powersgd_hook(int64_t rank);

// The largest `fraction` of each bucket.
std::shared_ptr<CommHook> make_topk_hook(double fraction, PackingOn choose = packing_on);

// A bit a number, and one scale for 1024 of them.
std::shared_ptr<CommHook> make_sign_hook(PackingOn choose = packing_on);

// 8 bits a number, and one scale for 512 of them; added in fp32 in between.
std::shared_ptr<CommHook> make_int8_hook(PackingOn choose = packing_on);

}  // namespace yoke::parallel
