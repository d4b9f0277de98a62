#include "cli/lab_values.h"

#include <CLI/CLI.hpp>

#include <charconv>
#include <cmath>

#include "yoke/base/error.h"
#include "yoke/base/text.h"
#include "yoke/base/units.h"

namespace yoke::cli {
namespace {

template <class T>
T parse_within(const std::string& flag, const std::string& word, T least, T most, const char* what) {
  T value{};
  const char* end = word.data() + word.size();
  const auto [rest, problem] = std::from_chars(word.data(), end, value);
  if (problem != std::errc() || rest != end || !(value >= least && value <= most))
    throw ConfigError("{} {}: expected {} from {} to {}.", flag, word, what, least, most);
  return value;
}

}  // namespace

LabValues::LabValues(const std::vector<LabOption>& options, const std::map<std::string, std::string>& typed,
                     bool quick) {
  for (const LabOption& option : options) {
    auto found = typed.find(option.flag);
    values_[option.flag] = found != typed.end() ? found->second : quick ? option.quick : option.value;
  }
}

const std::string& LabValues::text(const std::string& flag) const {
  auto found = values_.find(flag);
  YOKE_CHECK(found != values_.end(), "no option {}", flag);
  return found->second;
}

std::vector<std::string> LabValues::words(const std::string& flag) const {
  std::vector<std::string> words = split(text(flag), ',');
  for (std::string& word : words) word = trim(word);
  if (words.empty()) throw ConfigError("{}: empty. Give a list such as 1,2,4.", flag);
  return words;
}

int LabValues::integer(const std::string& flag, int least, int most) const {
  return parse_within(flag, text(flag), least, most, "an integer");
}

std::vector<int> LabValues::integers(const std::string& flag, int least, int most) const {
  std::vector<int> values;
  for (const std::string& word : words(flag))
    values.push_back(parse_within(flag, word, least, most, "integers"));
  return values;
}

double LabValues::number(const std::string& flag, double least, double most) const {
  return parse_within(flag, text(flag), least, most, "a number");
}

std::vector<double> LabValues::numbers(const std::string& flag, double least, double most) const {
  std::vector<double> values;
  for (const std::string& word : words(flag))
    values.push_back(parse_within(flag, word, least, most, "numbers"));
  return values;
}

double LabValues::duration(const std::string& flag) const {
  const auto seconds = parse_duration(text(flag));
  if (!seconds) throw ConfigError("{} {}: expected a time such as 5ms or 2s.", flag, text(flag));
  return *seconds;
}

double LabValues::rate(const std::string& flag) const {
  const auto rate = parse_rate(text(flag));
  if (!rate || *rate <= 0)
    throw ConfigError("{} {}: expected a rate such as 10gbit or 1.25GB/s.", flag, text(flag));
  return *rate;
}

std::vector<int64_t> LabValues::sizes(const std::string& flag) const {
  std::vector<int64_t> sizes;
  for (const std::string& word : words(flag)) {
    const auto bytes = parse_bytes(word);
    if (!bytes || *bytes < 1) throw ConfigError("{} {}: expected sizes such as 64K,25MB.", flag, word);
    sizes.push_back(*bytes);
  }
  return sizes;
}

std::string counted(const std::string& count, const std::string& one) {
  return count + " " + one + (count == "1" ? "" : "s");
}

void add_lab_options(CLI::App& command, const std::vector<LabOption>& options,
                     std::map<std::string, std::string>& typed) {
  for (const LabOption& option : options) {
    std::string help = option.help;
    if (!option.value.empty()) help += " [" + option.value + "]";
    command.add_option_function<std::string>(
        option.flag, [&typed, flag = option.flag](const std::string& value) { typed[flag] = value; }, help);
  }
}

}  // namespace yoke::cli
