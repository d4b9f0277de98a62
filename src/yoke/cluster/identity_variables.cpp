#include "yoke/cluster/identity_variables.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>

namespace yoke::cluster {
namespace {

bool is_secret(const std::string& name) {
  return name == "YOKE_JOB_KEY";
}

}  // namespace

SeenVariable* Variables::find(const std::string& name) {
  auto found =
      std::find_if(seen_.begin(), seen_.end(), [&](const SeenVariable& v) { return v.name == name; });
  return found == seen_.end() ? nullptr : &*found;
}

std::optional<std::string> Variables::text(const std::string& name) {
  std::optional<std::string> value = lookup_(name);
  if (!value || value->empty()) return std::nullopt;
  if (find(name) == nullptr) seen_.push_back({name, is_secret(name) ? "(hidden)" : *value, false, ""});
  return value;
}

std::optional<int> Variables::number(const std::string& name, int low, int high, std::string& problem) {
  std::optional<std::string> value = text(name);
  if (!value) return std::nullopt;
  int number = 0;
  const char* end = value->data() + value->size();
  auto [stop, error] = std::from_chars(value->data(), end, number);
  if (error == std::errc() && stop == end && number >= low && number <= high) return number;
  if (problem.empty()) {
    std::string range =
        high == kMaxWorldSize ? fmt::format("of at least {}", low) : fmt::format("in {}..{}", low, high);
    problem =
        fmt::format("{}={}: expected an integer {}. Correct or unset it", name, value->substr(0, 40), range);
  }
  return std::nullopt;
}

void Variables::used(const std::string& name, const std::string& why) {
  if (SeenVariable* variable = find(name)) {
    variable->used = true;
    variable->why = why;
  }
}

void Variables::ignored(const std::string& name, const std::string& why) {
  SeenVariable* variable = find(name);
  if (variable != nullptr && !variable->used) variable->why = "ignored: " + why;
}

std::vector<SeenVariable> Variables::take(const std::string& otherwise) {
  for (SeenVariable& variable : seen_) {
    if (!variable.used && variable.why.empty()) variable.why = "ignored: " + otherwise;
  }
  return std::move(seen_);
}

}  // namespace yoke::cluster
