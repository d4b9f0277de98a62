#include "yoke/plan/policies/rule.h"

#include <algorithm>
#include <charconv>

#include "yoke/base/error.h"
#include "yoke/base/text.h"

namespace yoke::plan {
namespace {

struct Row {
  Rule rule;
  const char* name;
  RuleTraits traits;
};

constexpr int64_t kAll = RuleTraits::kAll, kGiven = RuleTraits::kGiven;

// In the order of the enumeration.
constexpr Row kRules[] = {
    //                                        k       waits  cancels gated
    {Rule::kSync, "sync", {kAll, true, true, false}},
    {Rule::kKSync, "k_sync", {kGiven, true, true, false}},
    {Rule::kKBatchSync, "k_batch_sync", {kGiven, false, true, false}},
    {Rule::kAsync, "async", {1, true, false, false}},
    {Rule::kKAsync, "k_async", {kGiven, true, false, false}},
    {Rule::kKBatchAsync, "k_batch_async", {kGiven, false, false, false}},
    {Rule::kBoundedDelay, "bounded_delay", {1, false, false, true}},
    {Rule::kSsp, "ssp", {1, false, false, true}},
};

}  // namespace

const char* to_string(Rule rule) {
  return kRules[static_cast<size_t>(rule)].name;
}

const RuleTraits& traits_of(Rule rule) {
  return kRules[static_cast<size_t>(rule)].traits;
}

const std::vector<std::string>& rule_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const Row& row : kRules) all.emplace_back(row.name);
    return all;
  }();
  return names;
}

Rule parse_rule(const std::string& name) {
  for (const Row& row : kRules) {
    if (name == row.name) return row.rule;
  }
  throw ConfigError("policy '{}' is unknown. Accepted: {}.", name, join(rule_names(), " "));
}

void validate(const PolicyOptions& options) {
  const RuleTraits& traits = traits_of(options.rule);
  const char* name = to_string(options.rule);
  if (options.workers < 1) throw ConfigError("workers = {}: expected at least 1.", options.workers);
  if (traits.k == kGiven && options.k < 1)
    throw ConfigError("policy {}: k = {}: expected k of at least 1.", name, options.k);
  if (traits.k == kGiven && traits.waits && options.k > options.workers)
    throw ConfigError("policy {}: k = {} with {} workers: each contributes one gradient. Hint: use 1..{}.",
                      name, options.k, options.workers, options.workers);
  if (traits.gated && options.max_delay < 0)
    throw ConfigError("policy {}: max_delay = {}: expected 0 or more, or inf.", name, options.max_delay);
}

int64_t effective_k(const PolicyOptions& options) {
  int64_t k = traits_of(options.rule).k;
  return k == kGiven ? options.k : std::min<int64_t>(k, options.workers);
}

int64_t parse_max_delay(const std::string& what, const std::string& text) {
  std::string word = trim(text);
  if (word == "inf") return PolicyOptions::kUnbounded;
  int64_t value = 0;
  auto [rest, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (error != std::errc{} || rest != word.data() + word.size() || value < 0)
    throw ConfigError("{} {}: expected an integer of at least 0, or inf.", what, text);
  return value;
}

}  // namespace yoke::plan
