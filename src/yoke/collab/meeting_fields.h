// Fields of messages from peers: each is checked where it is read.
#pragma once

#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>

#include "yoke/base/error.h"

namespace yoke::collab {

// A message that does not follow the protocol. Costs its sender the connection.
class BadMessage : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

inline const nlohmann::json& field(const nlohmann::json& message, const char* name) {
  if (!message.is_object() || !message.contains(name))
    throw BadMessage(fmt::format("field '{}' is missing", name));
  return message.at(name);
}

inline int64_t integer_field(const nlohmann::json& message, const char* name, int64_t least, int64_t most) {
  const nlohmann::json& value = field(message, name);
  if (!value.is_number_integer()) throw BadMessage(fmt::format("field '{}' is not an integer", name));
  if (value.is_number_unsigned() && value.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX))
    throw BadMessage(fmt::format("field '{}' is out of range", name));
  const auto number = value.get<int64_t>();
  if (number < least || number > most)
    throw BadMessage(fmt::format("field '{}' = {}: expected {} to {}", name, number, least, most));
  return number;
}

inline double number_field(const nlohmann::json& message, const char* name) {
  const nlohmann::json& value = field(message, name);
  if (!value.is_number()) throw BadMessage(fmt::format("field '{}' is not a number", name));
  return value.get<double>();
}

inline std::string text_field(const nlohmann::json& message, const char* name, size_t most = 256) {
  const nlohmann::json& value = field(message, name);
  if (!value.is_string()) throw BadMessage(fmt::format("field '{}' is not a text", name));
  auto text = value.get<std::string>();
  if (text.size() > most) throw BadMessage(fmt::format("field '{}' has {} characters", name, text.size()));
  return text;
}

inline bool boolean_field(const nlohmann::json& message, const char* name) {
  const nlohmann::json& value = field(message, name);
  if (!value.is_boolean()) throw BadMessage(fmt::format("field '{}' is not true or false", name));
  return value.get<bool>();
}

inline const nlohmann::json& list_field(const nlohmann::json& message, const char* name, size_t most) {
  const nlohmann::json& value = field(message, name);
  if (!value.is_array() || value.size() > most)
    throw BadMessage(fmt::format("field '{}' is not a list of at most {}", name, most));
  return value;
}

}  // namespace yoke::collab
