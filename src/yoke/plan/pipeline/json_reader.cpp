#include "yoke/plan/pipeline/json_reader.h"

#include "yoke/base/error.h"

namespace yoke::plan {

using nlohmann::json;

JsonReader::JsonReader(const json& object, std::string what) : object_(object), what_(std::move(what)) {
  if (!object_.is_object()) throw ConfigError("{}: expected an object {{…}} here.", what_);
}

void JsonReader::refuse(const char* key, const char* accepted) const {
  if (!object_.contains(key)) throw ConfigError("{}: `{}` is missing. Accepted: {}.", what_, key, accepted);
  throw ConfigError("{}: `{}`: expected {}.", what_, key, accepted);
}

const json* JsonReader::find(const char* key, bool needed, const char* accepted) const {
  auto found = object_.find(key);
  if (found != object_.end()) return &*found;
  if (needed) refuse(key, accepted);
  return nullptr;
}

double JsonReader::number(const char* key, std::optional<double> fallback) const {
  const json* value = find(key, !fallback, "a number");
  if (value == nullptr) return *fallback;
  if (!value->is_number()) refuse(key, "a number");
  return value->get<double>();
}

int64_t JsonReader::count(const char* key, std::optional<int64_t> fallback) const {
  const json* value = find(key, !fallback, "an integer");
  if (value == nullptr) return *fallback;
  double rounded = value->is_number() ? value->get<double>() : -1;
  if (!value->is_number_integer() || rounded < 0 || rounded > 1e15) refuse(key, "an integer of at least 0");
  return value->get<int64_t>();
}

std::string JsonReader::text(const char* key, std::optional<std::string> fallback) const {
  const json* value = find(key, !fallback, "a text");
  if (value == nullptr) return *fallback;
  if (!value->is_string()) refuse(key, "a string");
  return value->get<std::string>();
}

bool JsonReader::truth(const char* key, std::optional<bool> fallback) const {
  const json* value = find(key, !fallback, "true or false");
  if (value == nullptr) return *fallback;
  if (!value->is_boolean()) refuse(key, "true or false");
  return value->get<bool>();
}

const json& JsonReader::array(const char* key) const {
  const json* value = find(key, true, "a list");
  if (!value->is_array()) refuse(key, "a list");
  return *value;
}

}  // namespace yoke::plan
