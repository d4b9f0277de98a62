// Typed access to the fields of a hand-written JSON document.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

namespace yoke::plan {

// Fields of one object; getters throw ConfigError naming `what`, the field, and what is accepted. A field
// with a fallback may be absent. Keeps a reference to `object`.
class JsonReader {
 public:
  JsonReader(const nlohmann::json& object, std::string what);

  bool has(const char* key) const { return object_.contains(key); }
  double number(const char* key, std::optional<double> fallback = {}) const;
  int64_t count(const char* key, std::optional<int64_t> fallback = {}) const;  // integer >= 0
  std::string text(const char* key, std::optional<std::string> fallback = {}) const;
  bool truth(const char* key, std::optional<bool> fallback = {}) const;
  const nlohmann::json& array(const char* key) const;

  [[noreturn]] void refuse(const char* key, const char* accepted) const;

 private:
  const nlohmann::json* find(const char* key, bool needed, const char* accepted) const;

  const nlohmann::json& object_;
  std::string what_;
};

}  // namespace yoke::plan
