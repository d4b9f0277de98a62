#include "yoke/plan/policies/delay_schedule.h"

#include <charconv>

#include "yoke/base/error.h"
#include "yoke/base/text.h"
#include "yoke/plan/policies/rule.h"

namespace yoke::plan {
namespace {

int64_t update_of(const std::string& what, const std::string& part, const std::string& word, int64_t before) {
  int64_t value = 0;
  auto [rest, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (error != std::errc{} || rest != word.data() + word.size() || value <= before)
    throw ConfigError(
        "{}: '{}': expected UPDATE:DELAY with an update after {}, as in \"0, 500:4, 2000:inf\".", what, part,
        before);
  return value;
}

}  // namespace

std::vector<DelayStep> parse_delay_schedule(const std::string& what, const std::string& text) {
  std::vector<DelayStep> steps;
  for (const std::string& part : split(text, ',')) {
    size_t colon = part.find(':');
    if (steps.empty()) {
      if (colon != std::string::npos)
        throw ConfigError("{} {}: must start with an initial delay, as in \"0, 500:4, 2000:inf\".", what,
                          text);
      steps.push_back({0, parse_max_delay(what, part)});
      continue;
    }
    std::string word = colon == std::string::npos ? part : part.substr(0, colon);
    int64_t from = update_of(what, part, colon == std::string::npos ? "" : trim(word), steps.back().from);
    steps.push_back({from, parse_max_delay(what, part.substr(colon + 1))});
  }
  if (steps.empty()) steps.push_back({0, parse_max_delay(what, text)});
  return steps;
}

int64_t delay_at(const std::vector<DelayStep>& schedule, int64_t version) {
  YOKE_CHECK(!schedule.empty() && schedule.front().from == 0, "a schedule must start at 0");
  int64_t delay = schedule.front().max_delay;
  for (const DelayStep& step : schedule) {
    if (step.from <= version) delay = step.max_delay;
  }
  return delay;
}

}  // namespace yoke::plan
