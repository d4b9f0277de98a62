#include "yoke/base/data_type.h"

#include "yoke/base/error.h"

namespace yoke {
namespace {

struct TypeName {
  DataType type;
  size_t bytes;
  const char* name;
  const char* other_names;  // separated by blanks
};

constexpr TypeName kTypes[] = {
    {DataType::kFloat32, 4, "fp32", "float32 float"},
    {DataType::kFloat64, 8, "fp64", "float64 double"},
    {DataType::kFloat16, 2, "fp16", "float16 half"},
    {DataType::kBFloat16, 2, "bf16", "bfloat16"},
    {DataType::kInt8, 1, "int8", ""},
    {DataType::kUint8, 1, "uint8", "byte"},
    {DataType::kInt16, 2, "int16", "short"},
    {DataType::kInt32, 4, "int32", "int"},
    {DataType::kInt64, 8, "int64", "long"},
};

constexpr const char* kOps[] = {"sum", "mean", "max", "min", "prod"};

bool has_word(const std::string& words, const std::string& word) {
  return !word.empty() && (" " + words + " ").find(" " + word + " ") != std::string::npos;
}

}  // namespace

size_t size_of(DataType type) {
  auto index = static_cast<size_t>(type);
  YOKE_CHECK(index < std::size(kTypes), "data type {}", index);
  return kTypes[index].bytes;
}

const char* to_string(DataType type) {
  auto index = static_cast<size_t>(type);
  return index < std::size(kTypes) ? kTypes[index].name : "unknown type";
}

DataType parse_data_type(const std::string& name) {
  for (const TypeName& entry : kTypes) {
    if (name == entry.name || has_word(entry.other_names, name)) return entry.type;
  }
  throw ConfigError("type '{}' is unknown. Accepted: fp32 fp64 fp16 bf16 int8 uint8 int16 int32 int64.",
                    name);
}

const char* to_string(ReduceOp op) {
  auto index = static_cast<size_t>(op);
  return index < std::size(kOps) ? kOps[index] : "unknown reduction";
}

ReduceOp parse_reduce_op(const std::string& name) {
  for (size_t i = 0; i < std::size(kOps); ++i) {
    if (name == kOps[i]) return static_cast<ReduceOp>(i);
  }
  throw ConfigError("reduction '{}' is unknown. Accepted: sum mean max min prod.", name);
}

}  // namespace yoke
