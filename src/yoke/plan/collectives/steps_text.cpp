#include <charconv>
#include <string_view>

#include "yoke/base/error.h"
#include "yoke/plan/collectives/steps.h"

namespace yoke::plan {
namespace {

constexpr const char* kActions[] = {"send", "receive", "combine", "merge"};

// Parses one line from left to right; every error names the line.
class LineReader {
 public:
  LineReader(std::string_view line, int number) : rest_(line), number_(number) {}

  template <class Integer>
  Integer number(const char* what) {
    Integer value = 0;
    auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value);
    if (error != std::errc{} || value < 0) fail(what);
    rest_.remove_prefix(static_cast<size_t>(end - rest_.data()));
    return value;
  }

  void literal(std::string_view text) {
    if (!rest_.starts_with(text)) fail("a step");
    rest_.remove_prefix(text.size());
  }

  Action action() {
    for (size_t i = 0; i < std::size(kActions); ++i) {
      if (!rest_.starts_with(kActions[i])) continue;
      literal(kActions[i]);
      return static_cast<Action>(i);
    }
    fail("send, receive, combine or merge");
  }

  [[noreturn]] void fail(const char* what) const {
    throw ConfigError("steps, line {}: expected {} at '{}'. A line reads: 0 send 1 [0,4)", number_, what,
                      std::string(rest_.substr(0, 40)));
  }

  bool done() const { return rest_.empty(); }

 private:
  std::string_view rest_;
  int number_;
};

Step parse_line(std::string_view line, int number) {
  LineReader reader(line, number);
  Step step;
  step.round = reader.number<int>("a round");
  reader.literal(" ");
  step.action = reader.action();
  reader.literal(" ");
  step.peer = reader.number<int>("a rank");
  reader.literal(" [");
  step.range.begin = reader.number<int64_t>("the first element");
  reader.literal(",");
  int64_t end = reader.number<int64_t>("the end");
  if (end < step.range.begin) reader.fail("an end behind the first element");
  step.range.count = end - step.range.begin;
  reader.literal(")");
  if (!reader.done()) reader.fail("the end of the line");
  return step;
}

}  // namespace

std::string to_string(const std::vector<Step>& steps) {
  std::string text;
  for (const Step& step : steps) {
    text += fmt::format("{} {} {} [{},{})\n", step.round, kActions[static_cast<size_t>(step.action)],
                        step.peer, step.range.begin, step.range.begin + step.range.count);
  }
  return text;
}

std::vector<Step> parse_steps(const std::string& text) {
  std::vector<Step> steps;
  std::string_view rest = text;
  for (int number = 1; !rest.empty(); ++number) {
    size_t end = rest.find('\n');
    std::string_view line = rest.substr(0, end);
    rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
    if (line.empty()) continue;
    steps.push_back(parse_line(line, number));
    if (steps.size() > 1 && steps.back().round < steps[steps.size() - 2].round)
      throw ConfigError("steps, line {}: round {} after round {}. Rounds do not go back.", number,
                        steps.back().round, steps[steps.size() - 2].round);
  }
  return steps;
}

}  // namespace yoke::plan
