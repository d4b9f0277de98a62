// Typed access to the fields of an untrusted JSON object.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

namespace yoke::metrics {

// JSON has no NaN and infinity; null stands for a non-finite number.
nlohmann::ordered_json finite_or_null(double value);

// Getters throw ConfigError naming the field if it is missing (unless optional) or of another type. Keeps a
// reference to `object`.
class JsonFields {
 public:
  // `what` names the document in errors. Throws ConfigError if `object` is not a JSON object.
  JsonFields(const nlohmann::json& object, std::string what);

  bool has(const char* key) const { return object_.contains(key); }
  double number(const char* key) const;  // null reads as NaN
  int64_t count(const char* key) const;  // an integer >= 0
  std::string text(const char* key) const;
  JsonFields object(const char* key) const;
  const nlohmann::json& array(const char* key) const;

  std::optional<double> optional_number(const char* key) const;
  std::optional<int64_t> optional_count(const char* key) const;
  std::string optional_text(const char* key) const;  // "" if absent

 private:
  const nlohmann::json& at(const char* key) const;
  [[noreturn]] void refuse(const char* key, const char* accepted) const;

  const nlohmann::json& object_;
  std::string what_;
};

// The integer in `value`; empty unless it is an integer >= 0.
std::optional<int64_t> as_count(const nlohmann::json& value);

}  // namespace yoke::metrics
