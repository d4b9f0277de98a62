// All sections of a configuration, read from a file, the environment and the command line.
//
// Later sources win: built-in < file < YOKE_SECTION__KEY < --section.key=value < --set section.key=value. An
// unknown key or a value of the wrong type is a ConfigError with its position and the nearest name.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "yoke/config/fields.h"

namespace yoke::config {

struct Entry {
  std::string section;
  Field field;
  Value initial;                    // the built-in value
  std::string origin = "built-in";  // "built-in", "configs/lenet.toml:12", "YOKE_TRAIN__LR", "--train.lr"
  bool corrects = false;            // an earlier source had set it to another value than the built-in one
  std::string key() const { return section + "." + field.name; }
  bool is_initial() const { return field.get() == initial; }
  // Set on the command line or in the environment, not in a file.
  bool is_typed() const { return origin.rfind("--", 0) == 0 || origin.rfind("YOKE_", 0) == 0; }
};

// A value of this key as a file would hold it; to_toml(Value) for most.
std::string value_text(const Entry& entry, const Value& value);

// "train.lr" and its value as typed.
struct Override {
  std::string key;
  std::string value;
  std::string origin;  // "--train.lr"
};

class Schema {
 public:
  // Adds the fields listed by `describe(fields, options)`. `options` must outlive the schema.
  template <class Options>
  void section(std::string name, Options& options) {
    Fields fields;
    describe(fields, options);
    add_section(std::move(name), fields);
  }

  // Reads a TOML file. Throws ConfigError naming file and line.
  void read_file(const std::filesystem::path& path);
  void read_text(std::string_view text, const std::string& file_name);

  // Sets one key from text. Throws ConfigError naming the origin.
  void set(const Override& change);

  // Restores the built-in value of a key. Requires has(key).
  void reset(std::string_view key);

  const std::vector<Entry>& entries() const { return entries_; }
  bool has(std::string_view key) const;
  const Entry& at(std::string_view key) const;

  // The key probably meant by `name`, with or without a section: "lr", "batch-size", "train.learning_rate",
  // "trian.lr". Empty if none is similar.
  std::string nearest_key(std::string_view name) const;

  // The effective configuration as TOML; with `origins`, each line names the source of its value.
  std::string to_toml(bool origins = false) const;

 private:
  void add_section(std::string name, const Fields& fields);
  void assign(std::string_view key, const Value& value, const std::string& origin);
  Entry* find(std::string_view key);

  std::vector<Entry> entries_;
};

}  // namespace yoke::config
