#include "yoke/config/tables.h"

#include <fmt/core.h>

#include <algorithm>
#include <optional>

#include "yoke/base/text.h"
#include "yoke/config/toml_library.h"
#include "yoke/config/toml_text.h"

namespace yoke::config {
namespace {

constexpr const char* kShape = "a list of tables such as [{match = \"*.bias\", weight_decay = 0}]";

std::optional<Value> scalar(const toml::node& node) {
  if (auto flag = node.value_exact<bool>()) return Value(*flag);
  if (auto whole = node.value_exact<int64_t>()) return Value(*whole);
  if (auto real = node.value_exact<double>()) return Value(*real);
  if (auto text = node.value_exact<std::string>()) return Value(from_ascii(*text));
  return std::nullopt;
}

std::optional<TableRow> row_of(const toml::node& node) {
  const toml::table* table = node.as_table();
  if (table == nullptr) return std::nullopt;
  TableRow row;
  for (auto&& [key, value] : *table) {
    std::optional<Value> converted = scalar(value);
    if (!converted) return std::nullopt;
    row.emplace_back(from_ascii(key.str()), std::move(*converted));
  }
  return row;
}

}  // namespace

TableList parse_tables(std::string_view text) {
  const std::string trimmed = trim(text);
  if (trimmed.empty()) return {};
  const toml::parse_result parsed = toml::parse("list = " + to_ascii(trimmed));
  if (!parsed) return {{}, kShape};
  const toml::array* array = parsed.table()["list"].as_array();
  if (array == nullptr || parsed.table().size() != 1) return {{}, kShape};
  TableList list;
  for (const toml::node& node : *array) {
    std::optional<TableRow> row = row_of(node);
    if (!row) return {{}, kShape};
    list.rows.push_back(std::move(*row));
  }
  return list;
}

std::string to_toml(const TableRow& row) {
  std::vector<std::string> parts;
  for (const auto& [key, value] : row) parts.push_back(fmt::format("{} = {}", key, to_toml(value)));
  return "{" + join(parts) + "}";
}

std::string set_fields(const Fields& fields, const TableRow& row) {
  std::vector<std::string> names;
  for (const Field& field : fields.list()) names.push_back(field.name);
  for (const auto& [key, value] : row) {
    auto found = std::find_if(fields.list().begin(), fields.list().end(),
                              [&, &name = key](const Field& field) { return field.name == name; });
    if (found == fields.list().end()) {
      const std::string near = nearest_name(key, names);
      return fmt::format("tables of {}, not `{}`{}", join(names), key,
                         near.empty() ? "" : fmt::format(" (did you mean {}?)", near));
    }
    const std::string accepted = found->set(value);
    if (!accepted.empty()) return fmt::format("for {} {}", key, accepted);
  }
  return "";
}

}  // namespace yoke::config
