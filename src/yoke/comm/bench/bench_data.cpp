#include "yoke/comm/bench/bench_data.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace yoke::comm {
namespace {

uint16_t to_bf16(float value) {
  return static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16);
}
float from_bf16(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

// Integers below 2048 are exact in fp16; others lose their last bits.
uint16_t to_fp16(double value) {
  if (value == 0) return 0;
  int exponent = 0;
  double fraction = std::frexp(std::fabs(value), &exponent);  // in [0.5, 1)
  auto mantissa = static_cast<uint32_t>(fraction * 2048) & 0x3ff;
  return static_cast<uint16_t>((value < 0 ? 0x8000 : 0) | ((exponent + 14) << 10) | mantissa);
}

double from_fp16(uint16_t bits) {
  int exponent = (bits >> 10) & 31;
  double mantissa = bits & 0x3ff;
  double value = exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
  return bits & 0x8000 ? -value : value;
}

template <class T>
void put(void* data, int64_t i, double value) {
  static_cast<T*>(data)[i] = static_cast<T>(value);
}
template <class T>
double get(const void* data, int64_t i) {
  return static_cast<double>(static_cast<const T*>(data)[i]);
}

bool is_integer(DataType type) {
  return type >= DataType::kInt8;
}

}  // namespace

int64_t bench_value(int rank, int64_t i, ReduceOp op) {
  if (op == ReduceOp::kProd) return rank < 4 ? 1 + (rank + i) % 2 : 1;
  return (rank * 3 + i) % 5;
}

double bench_expected(int ranks, int64_t i, ReduceOp op, DataType type) {
  int64_t sum = 0;
  int64_t product = 1;
  int64_t largest = bench_value(0, i, op);
  int64_t least = largest;
  for (int r = 0; r < ranks; ++r) {
    int64_t value = bench_value(r, i, op);
    sum += value;
    product *= value;
    largest = std::max(largest, value);
    least = std::min(least, value);
  }
  switch (op) {
    case ReduceOp::kSum:
      return static_cast<double>(sum);
    case ReduceOp::kMean:
      return is_integer(type) ? static_cast<double>(sum / ranks) : static_cast<double>(sum) / ranks;
    case ReduceOp::kMax:
      return static_cast<double>(largest);
    case ReduceOp::kMin:
      return static_cast<double>(least);
    case ReduceOp::kProd:
      return static_cast<double>(product);
  }
  return 0;
}

void write_value(void* data, int64_t i, DataType type, double value) {
  switch (type) {
    case DataType::kFloat32:
      return put<float>(data, i, value);
    case DataType::kFloat64:
      return put<double>(data, i, value);
    case DataType::kFloat16:
      static_cast<uint16_t*>(data)[i] = to_fp16(value);
      return;
    case DataType::kBFloat16:
      static_cast<uint16_t*>(data)[i] = to_bf16(static_cast<float>(value));
      return;
    case DataType::kInt8:
      return put<int8_t>(data, i, value);
    case DataType::kUint8:
      return put<uint8_t>(data, i, value);
    case DataType::kInt16:
      return put<int16_t>(data, i, value);
    case DataType::kInt32:
      return put<int32_t>(data, i, value);
    case DataType::kInt64:
      return put<int64_t>(data, i, value);
  }
}

double read_value(const void* data, int64_t i, DataType type) {
  switch (type) {
    case DataType::kFloat32:
      return get<float>(data, i);
    case DataType::kFloat64:
      return get<double>(data, i);
    case DataType::kFloat16:
      return from_fp16(static_cast<const uint16_t*>(data)[i]);
    case DataType::kBFloat16:
      return static_cast<double>(from_bf16(static_cast<const uint16_t*>(data)[i]));
    case DataType::kInt8:
      return get<int8_t>(data, i);
    case DataType::kUint8:
      return get<uint8_t>(data, i);
    case DataType::kInt16:
      return get<int16_t>(data, i);
    case DataType::kInt32:
      return get<int32_t>(data, i);
    case DataType::kInt64:
      return get<int64_t>(data, i);
  }
  return 0;
}

}  // namespace yoke::comm
