#include "yoke/config/arguments.h"

#include <algorithm>

#include "yoke/base/error.h"
#include "yoke/base/text.h"

namespace yoke::config {
namespace {

bool starts_with(const std::string& text, std::string_view start) {
  return text.rfind(start, 0) == 0;
}

// --section.key: two dashes and a dot before any '='.
bool is_dotted_option(const std::string& word) {
  if (!starts_with(word, "--")) return false;
  std::string name =
      word.substr(2, word.find('=') == std::string::npos ? std::string::npos : word.find('=') - 2);
  return name.find('.') != std::string::npos;
}

// As in torchrun: a dash inside a key is an underscore.
std::string key_of(std::string name) {
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

Override parse_set(const std::string& assignment) {
  size_t equals = assignment.find('=');
  if (equals == std::string::npos) {
    throw ConfigError("--set {}: expected --set section.key=value.", assignment);
  }
  return {key_of(trim(assignment.substr(0, equals))), assignment.substr(equals + 1), "--set"};
}

class Taker {
 public:
  Taker(const Schema& schema, std::vector<std::string>& words) : schema_(schema), words_(words) {}

  std::vector<Override> take() {
    std::vector<std::string> rest;
    for (at_ = 0; at_ < words_.size(); ++at_) {
      const std::string& word = words_[at_];
      if (word == "--set") {
        later_.push_back(parse_set(value_after(word)));
      } else if (starts_with(word, "--set=")) {
        later_.push_back(parse_set(word.substr(6)));
      } else if (is_dotted_option(word)) {
        take_option(word);
      } else {
        rest.push_back(word);
      }
    }
    words_ = std::move(rest);
    overrides_.insert(overrides_.end(), later_.begin(), later_.end());
    return std::move(overrides_);
  }

 private:
  std::string value_after(const std::string& option) {
    bool missing = at_ + 1 >= words_.size() || starts_with(words_[at_ + 1], "--");
    if (missing) throw ConfigError("{} needs a value.", option);
    return words_[++at_];
  }

  bool is_boolean(const std::string& key) const {
    return schema_.has(key) && schema_.at(key).field.type == "true or false";
  }

  void take_option(const std::string& word) {
    size_t equals = word.find('=');
    std::string option = word.substr(0, equals);
    std::string key = key_of(option.substr(2));
    if (equals != std::string::npos) {
      overrides_.push_back({key, word.substr(equals + 1), option});
    } else if (is_boolean(key)) {
      overrides_.push_back({key, boolean_value(), option});
    } else if (starts_with(key, "no_") && is_boolean(key.substr(3))) {
      overrides_.push_back({key.substr(3), "false", option});
    } else if (!schema_.has(key)) {
      overrides_.push_back({key, "", option});  // Schema::set reports the error
      if (at_ + 1 < words_.size() && !starts_with(words_[at_ + 1], "-")) ++at_;
    } else {
      overrides_.push_back({key, value_after(option), option});
    }
  }

  // `--x` alone is true; `--x false` and `--x true` are understood too.
  std::string boolean_value() {
    if (at_ + 1 < words_.size() && (words_[at_ + 1] == "true" || words_[at_ + 1] == "false"))
      return words_[++at_];
    return "true";
  }

  const Schema& schema_;
  std::vector<std::string>& words_;
  size_t at_ = 0;
  std::vector<Override> overrides_;
  std::vector<Override> later_;
};

}  // namespace

std::vector<Override> take_overrides(const Schema& schema, std::vector<std::string>& words) {
  return Taker(schema, words).take();
}

}  // namespace yoke::config
