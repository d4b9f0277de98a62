#include "yoke/metrics/json_fields.h"

#include <cmath>
#include <limits>
#include <utility>

#include "yoke/base/error.h"

namespace yoke::metrics {

nlohmann::ordered_json finite_or_null(double value) {
  return std::isfinite(value) ? nlohmann::ordered_json(value) : nlohmann::ordered_json(nullptr);
}

std::optional<int64_t> as_count(const nlohmann::json& value) {
  if (value.is_number_unsigned()) {
    auto number = value.get<uint64_t>();
    if (number <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max()))
      return static_cast<int64_t>(number);
    return std::nullopt;
  }
  // A value built in memory, not parsed, may be signed and still be a count.
  if (value.is_number_integer() && value.get<int64_t>() >= 0) return value.get<int64_t>();
  return std::nullopt;
}

JsonFields::JsonFields(const nlohmann::json& object, std::string what)
    : object_(object), what_(std::move(what)) {
  if (!object.is_object()) throw ConfigError("{}: not a JSON object. Is the file truncated?", what_);
}

const nlohmann::json& JsonFields::at(const char* key) const {
  auto found = object_.find(key);
  if (found == object_.end()) throw ConfigError("{}: \"{}\" is missing.", what_, key);
  return *found;
}

void JsonFields::refuse(const char* key, const char* accepted) const {
  throw ConfigError("{}: \"{}\" is a {}; it must be {}.", what_, key, at(key).type_name(), accepted);
}

double JsonFields::number(const char* key) const {
  const nlohmann::json& value = at(key);
  if (value.is_null()) return std::numeric_limits<double>::quiet_NaN();
  if (!value.is_number()) refuse(key, "a number or null");
  return value.get<double>();
}

int64_t JsonFields::count(const char* key) const {
  std::optional<int64_t> value = as_count(at(key));
  if (!value) refuse(key, "an integer of at least 0");
  return *value;
}

std::string JsonFields::text(const char* key) const {
  const nlohmann::json& value = at(key);
  if (!value.is_string()) refuse(key, "a text");
  return value.get<std::string>();
}

JsonFields JsonFields::object(const char* key) const {
  if (!at(key).is_object()) refuse(key, "an object");
  return JsonFields(at(key), what_ + "." + key);
}

const nlohmann::json& JsonFields::array(const char* key) const {
  const nlohmann::json& value = at(key);
  if (!value.is_array()) refuse(key, "an array");
  return value;
}

std::optional<double> JsonFields::optional_number(const char* key) const {
  return has(key) ? std::optional(number(key)) : std::nullopt;
}

std::optional<int64_t> JsonFields::optional_count(const char* key) const {
  return has(key) ? std::optional(count(key)) : std::nullopt;
}

std::string JsonFields::optional_text(const char* key) const {
  return has(key) ? text(key) : "";
}

}  // namespace yoke::metrics
