// Element types of kernels and communicators.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace yoke {

enum class DataType : uint8_t {
  kFloat32,
  kFloat64,
  kFloat16,
  kBFloat16,
  kInt8,
  kUint8,
  kInt16,
  kInt32,
  kInt64,
};

size_t size_of(DataType type);         // bytes of one element
const char* to_string(DataType type);  // "fp32", "bf16", "int64", …
// Throws ConfigError that lists what is accepted. Also accepts "float32", "half" and similar.
DataType parse_data_type(const std::string& name);

// How contributions are combined. Mean is a sum divided by their number.
enum class ReduceOp : uint8_t { kSum, kMean, kMax, kMin, kProd };

const char* to_string(ReduceOp op);
ReduceOp parse_reduce_op(const std::string& name);  // throws ConfigError

}  // namespace yoke
