// The built-in communication hooks; make_hook() selects one. Formulas: docs/design/data_parallel.md.
//
// All hooks: every rank gets the same bits; a gradient that is non-finite on one rank is non-finite on all
// afterwards; what compression omits in a step is kept per bucket and added in the next one (except for
// casts); a bucket with a non-finite gradient leaves that memory unchanged. Gradients may be on any device;
// `choose` is for tests.
#pragma once

#include <torch/types.h>

#include <memory>

#include "yoke/parallel/common/ddp/comm_hook.h"
#include "yoke/parallel/common/ddp/hooks/packing.h"

namespace yoke::parallel {

// Summed in `type`, divided first so that the sum overflows no earlier than one rank's gradient.
std::shared_ptr<CommHook> make_cast_hook(torch::ScalarType type);

// Vogels, Karimireddy, Jaggi 2019: matrices as products of two thin ones with `rank` columns.
std::shared_ptr<CommHook> make_powersgd_hook(int64_t rank);

// The largest `fraction` of each bucket.
std::shared_ptr<CommHook> make_topk_hook(double fraction, PackingOn choose = packing_on);

// One bit per value, and one scale per 1024 values.
std::shared_ptr<CommHook> make_sign_hook(PackingOn choose = packing_on);

// 8 bits per value, and one scale per 512 values; accumulated in fp32.
std::shared_ptr<CommHook> make_int8_hook(PackingOn choose = packing_on);

}  // namespace yoke::parallel
