// Arrays whose collective results are known: small whole numbers, exact in every type.
#pragma once

#include <cstdint>
#include <vector>

#include "yoke/comm/bench/bench_collectives.h"

namespace yoke::comm {

// Element i of rank r's input. 1 or 2 for products, 0 to 4 otherwise; sums stay exact in bf16 for up to 50
// ranks.
int64_t bench_value(int rank, int64_t i, ReduceOp op);

// Combined over `ranks`; the mean rounded towards zero for integers.
double bench_expected(int ranks, int64_t i, ReduceOp op, DataType type);

void write_value(void* data, int64_t i, DataType type, double value);
double read_value(const void* data, int64_t i, DataType type);

}  // namespace yoke::comm
