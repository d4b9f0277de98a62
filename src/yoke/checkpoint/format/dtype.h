// Element types of safetensors files supported by LibTorch. Sub-byte types (F4, F6) are refused by name.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace yoke::checkpoint::format {

enum class DType {
  kBool,
  kU8,
  kI8,
  kF8E4M3,
  kF8E5M2,
  kF8E8M0,
  kF8E4M3Fnuz,
  kF8E5M2Fnuz,
  kI16,
  kU16,
  kF16,
  kBF16,
  kI32,
  kU32,
  kF32,
  kC64,
  kF64,
  kI64,
  kU64,
};

// Bytes of one element.
uint64_t size_of(DType dtype);

// Name in files: "F32".
std::string_view name_of(DType dtype);

// Empty for unsupported names.
std::optional<DType> parse_dtype(std::string_view name);

// "BOOL, U8, …": names that parse_dtype() accepts.
std::string accepted_dtypes();

}  // namespace yoke::checkpoint::format
