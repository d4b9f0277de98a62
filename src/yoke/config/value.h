// A configuration value, independent of its source.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

namespace yoke::config {

struct Value;
using Array = std::vector<Value>;

// A value as read: from TOML with its type, or a bare text from the command line or the environment, which is
// converted to the type of its field.
struct Text {
  std::string content;
  bool operator==(const Text&) const = default;
};

struct Value : std::variant<bool, int64_t, double, std::string, Array, Text> {
  using variant::variant;
};

// As TOML would write it: true, 3, 0.05, "text", [1, 2].
std::string to_toml(const Value& value);

}  // namespace yoke::config
