// The fields of an option struct, listed once; parsing, printing, --help and the reference page use the list.
//
//   inline void describe(config::Fields& f, DdpOptions& o) {
//     f.bytes("bucket_bytes", o.bucket_bytes, "target size of one gradient bucket");
//   }
//
// A Fields object refers to the described struct, which must outlive it.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "yoke/config/value.h"

namespace yoke::config {

struct Field {
  std::string name;
  std::string type;  // "integer", "number", "text", "true or false", "size", …
  std::string help;
  std::vector<std::string> accepted;  // for choices; empty otherwise
  std::function<Value()> get;
  // Sets the value; returns "" or what is accepted ("a whole number of at least 1").
  std::function<std::string(const Value&)> set;
};

constexpr int64_t kNoLimit = INT64_MAX;

class Fields {
 public:
  void boolean(std::string name, bool& value, std::string help);
  void integer(std::string name, int64_t& value, std::string help, int64_t least = 0,
               int64_t most = kNoLimit);
  void number(std::string name, double& value, std::string help, double least = 0.0, double most = 1e308);
  void text(std::string name, std::string& value, std::string help);
  void choice(std::string name, std::string& value, std::vector<std::string> accepted, std::string help);
  void bytes(std::string name, int64_t& value, std::string help);                  // 25MB
  void duration(std::string name, double& seconds, std::string help);              // 5ms
  void integers(std::string name, std::vector<int64_t>& value, std::string help);  // [1, 2] or 1,2
  void numbers(std::string name, std::vector<double>& value, std::string help);
  // A text for which `check` returns "", or what is accepted instead.
  void checked_text(std::string name, std::string& value, std::string help,
                    std::function<std::string(const std::string&)> check);

  const std::vector<Field>& list() const { return fields_; }

 private:
  void add(Field field) { fields_.push_back(std::move(field)); }
  std::vector<Field> fields_;
};

}  // namespace yoke::config
