#include "yoke/checkpoint/format/dtype.h"

#include <array>
#include <vector>

#include "yoke/base/text.h"

namespace yoke::checkpoint::format {
namespace {

struct Row {
  DType dtype;
  std::string_view name;
  uint64_t bytes;
};

constexpr std::array kRows{
    Row{DType::kBool, "BOOL", 1},
    Row{DType::kU8, "U8", 1},
    Row{DType::kI8, "I8", 1},
    Row{DType::kF8E4M3, "F8_E4M3", 1},
    Row{DType::kF8E5M2, "F8_E5M2", 1},
    Row{DType::kF8E8M0, "F8_E8M0", 1},
    Row{DType::kF8E4M3Fnuz, "F8_E4M3FNUZ", 1},
    Row{DType::kF8E5M2Fnuz, "F8_E5M2FNUZ", 1},
    Row{DType::kI16, "I16", 2},
    Row{DType::kU16, "U16", 2},
    Row{DType::kF16, "F16", 2},
    Row{DType::kBF16, "BF16", 2},
    Row{DType::kI32, "I32", 4},
    Row{DType::kU32, "U32", 4},
    Row{DType::kF32, "F32", 4},
    Row{DType::kC64, "C64", 8},
    Row{DType::kF64, "F64", 8},
    Row{DType::kI64, "I64", 8},
    Row{DType::kU64, "U64", 8},
};

// The enumerators index the table.
constexpr bool in_order() {
  for (size_t i = 0; i < kRows.size(); ++i)
    if (kRows[i].dtype != static_cast<DType>(i)) return false;
  return true;
}
static_assert(in_order());

}  // namespace

uint64_t size_of(DType dtype) {
  return kRows[static_cast<size_t>(dtype)].bytes;
}

std::string_view name_of(DType dtype) {
  return kRows[static_cast<size_t>(dtype)].name;
}

std::optional<DType> parse_dtype(std::string_view name) {
  for (const Row& row : kRows)
    if (row.name == name) return row.dtype;
  return std::nullopt;
}

std::string accepted_dtypes() {
  std::vector<std::string> names;
  for (const Row& row : kRows) names.emplace_back(row.name);
  return join(names);
}

}  // namespace yoke::checkpoint::format
