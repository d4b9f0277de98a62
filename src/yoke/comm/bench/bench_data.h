// Test data with known results: small integers, exact in every element type.
#pragma once

#include <cstdint>
#include <vector>

#include "yoke/comm/bench/bench_collectives.h"

namespace yoke::comm {

// Element i of the input of `rank`: 1 or 2 for products, 0 to 4 otherwise. Sums stay exact in bf16 for up to
// 50 ranks.
int64_t bench_value(int rank, int64_t i, ReduceOp op);

// The expected result over `ranks`; integer means are rounded towards zero.
double bench_expected(int ranks, int64_t i, ReduceOp op, DataType type);

void write_value(void* data, int64_t i, DataType type, double value);
double read_value(const void* data, int64_t i, DataType type);

}  // namespace yoke::comm
