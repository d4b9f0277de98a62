#include "yoke/plan/policies/delay_law.h"

#include <charconv>
#include <cmath>
#include <numeric>
#include <optional>
#include <string_view>

#include "yoke/base/error.h"
#include "yoke/base/file.h"
#include "yoke/base/text.h"
#include "yoke/base/units.h"

namespace yoke::plan {
namespace {

using Kind = DelayLaw::Kind;

constexpr uint64_t kDelaySeed = 0x64656c6179;  // "delay"
constexpr uint64_t kLinkSeed = 0x6c696e6b;     // "link"
constexpr int64_t kTraceBytes = int64_t{64} << 20;
constexpr double kLongest = 1e9;  // seconds; beyond this sums lose milliseconds

// In the order of the enumeration.
constexpr struct {
  const char* name;
  const char* form;
  size_t values;
} kLawForms[] = {
    {"none", "none", 0},
    {"const", "const:2x", 1},
    {"exp", "exp:MEAN", 1},
    {"shifted_exp", "shifted_exp:SHIFT,MEAN", 2},
    {"pareto", "pareto:SCALE,SHAPE", 2},
    {"trace", "trace:FILE", 1},
};

std::optional<double> parse_number(std::string_view text) {
  double value = 0;
  auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || rest != text.data() + text.size() || !std::isfinite(value)) return std::nullopt;
  return value;
}

// A bare number would be seconds, which hardly anybody means by exp:5.
double time_of(const std::string& law, const std::string& what, const std::string& text, bool may_be_zero) {
  std::optional<double> bare = parse_number(text), seconds = parse_duration(text);
  if (bare && *bare > 0)
    throw ConfigError("delay law '{}': {} '{}' has no unit. Accepted: {}ms, {}s.", law, what, text, text,
                      text);
  if (!seconds || *seconds > kLongest || (*seconds == 0 && !may_be_zero))
    throw ConfigError("delay law '{}': {} '{}' is not a time{}. Accepted: 5ms, 2s.", law, what, text,
                      may_be_zero ? "" : " above 0");
  return *seconds;
}

double factor_of(const std::string& law, const std::string& text) {
  std::string_view digits = text;
  if (!digits.empty() && digits.back() == 'x') digits.remove_suffix(1);
  std::optional<double> factor = parse_number(digits);
  if (!factor || *factor < 1 || *factor > kLongest)
    throw ConfigError("delay law '{}': '{}' is not a factor. Accepted: at least 1x, such as const:2x.", law,
                      text);
  return *factor;
}

double shape_of(const std::string& law, const std::string& text) {
  std::optional<double> shape = parse_number(text);
  if (!shape || *shape <= 1)
    throw ConfigError("delay law '{}': shape '{}' must be a number above 1; otherwise the mean is infinite.",
                      law, text);
  return *shape;
}

std::shared_ptr<const std::vector<double>> read_trace(const std::string& file) {
  auto times = std::make_shared<std::vector<double>>();
  std::string content = read_file(file, kTraceBytes);
  std::string_view rest = content;
  for (int line = 1; !rest.empty(); ++line) {
    size_t end = rest.find('\n');
    std::string text = trim(rest.substr(0, end).substr(0, rest.substr(0, end).find('#')));
    rest = end == std::string_view::npos ? std::string_view() : rest.substr(end + 1);
    if (text.empty()) continue;
    std::optional<double> seconds = parse_duration(text);
    if (!seconds || *seconds > kLongest)
      throw ConfigError("{}:{}: '{}' is not a time. A trace has one time per line: 5ms, 2s, 0.5 (seconds).",
                        file, line, text);
    times->push_back(*seconds);
  }
  if (times->empty())
    throw ConfigError("{}: holds no times. A trace has one time per line: 5ms, 2s, 0.5.", file);
  return times;
}

std::string accepted() {
  std::vector<std::string> forms;
  for (const auto& form : kLawForms) forms.emplace_back(form.form);
  return join(forms, " ");
}

}  // namespace

DelayLaw parse_delay_law(const std::string& text) {
  size_t colon = text.find(':');
  std::string name = trim(std::string_view(text).substr(0, colon));
  std::string rest = colon == std::string::npos ? "" : text.substr(colon + 1);
  DelayLaw law;
  size_t kind = 0;
  while (kind < std::size(kLawForms) && name != kLawForms[kind].name) ++kind;
  if (kind == std::size(kLawForms))
    throw ConfigError("delay law '{}' is unknown. Accepted: {}.", text, accepted());
  law.kind = static_cast<Kind>(kind);
  // File names may contain commas.
  std::vector<std::string> values = law.kind == Kind::kTrace ? std::vector{trim(rest)} : split(rest, ',');
  if (values.size() != kLawForms[kind].values ||
      (kLawForms[kind].values == 0) != (colon == std::string::npos))
    throw ConfigError("delay law '{}': the form is {}.", text, kLawForms[kind].form);
  switch (law.kind) {
    case Kind::kNone:
      break;
    case Kind::kConst:
      law.scale = factor_of(text, values[0]);
      break;
    case Kind::kExp:
      law.scale = time_of(text, "mean", values[0], false);
      break;
    case Kind::kShiftedExp:
      law.shift = time_of(text, "shift", values[0], true);
      law.scale = time_of(text, "mean", values[1], false);
      break;
    case Kind::kPareto:
      law.scale = time_of(text, "scale", values[0], false);
      law.shape = shape_of(text, values[1]);
      break;
    case Kind::kTrace:
      if (values[0].empty()) throw ConfigError("delay law '{}': the form is trace:FILE.", text);
      law.file = values[0];
      law.trace = read_trace(law.file);
      break;
  }
  return law;
}

DelayLaw parse_link_law(const std::string& text) {
  DelayLaw law = parse_delay_law(text);
  if (law.kind == DelayLaw::Kind::kConst)
    throw ConfigError(
        "delay law '{}': the delay of a link is a time. Accepted: none exp:5ms shifted_exp:5ms,5ms "
        "pareto:1ms,3 trace:FILE.",
        text);
  return law;
}

std::string to_string(const DelayLaw& law) {
  switch (law.kind) {
    case Kind::kNone:
      return "none";
    case Kind::kConst:
      return fmt::format("const:{}x", law.scale);
    case Kind::kExp:
      return fmt::format("exp:{}s", law.scale);
    case Kind::kShiftedExp:
      return fmt::format("shifted_exp:{}s,{}s", law.shift, law.scale);
    case Kind::kPareto:
      return fmt::format("pareto:{}s,{}", law.scale, law.shape);
    case Kind::kTrace:
      return "trace:" + law.file;
  }
  return "";
}

double DelayLaw::mean(double compute) const {
  switch (kind) {
    case Kind::kNone:
      return 0;
    case Kind::kConst:
      return (scale - 1) * compute;
    case Kind::kExp:
    case Kind::kShiftedExp:
      return shift + scale;
    case Kind::kPareto:
      return shape * scale / (shape - 1);
    case Kind::kTrace:
      return std::accumulate(trace->begin(), trace->end(), 0.0) / static_cast<double>(trace->size());
  }
  return 0;
}

std::vector<bool> parse_slow_workers(const std::string& what, const std::string& text, int workers) {
  std::vector<std::string> parts = split(text, ',');
  std::vector<bool> slow(static_cast<size_t>(workers), parts.empty());
  for (const std::string& part : parts) {
    int worker = -1;
    auto [rest, error] = std::from_chars(part.data(), part.data() + part.size(), worker);
    if (error != std::errc{} || rest != part.data() + part.size() || worker < 0 || worker >= workers)
      throw ConfigError("{} {}: '{}' is not a worker. Accepted: numbers from 0 to {}, such as 0,2.", what,
                        text, part, workers - 1);
    slow[static_cast<size_t>(worker)] = true;
  }
  return slow;
}

DelayStream::DelayStream(const DelayLaw& law, uint64_t seed, int worker)
    : law_(law), random_(derive_seed(seed, kDelaySeed, static_cast<uint64_t>(worker))) {
  if (law_.trace) position_ = static_cast<size_t>(random_.below(law_.trace->size()));
}

DelayStream link_delays(const DelayLaw& law, uint64_t seed, int worker) {
  return {law, derive_seed(seed, kLinkSeed), worker};
}

double DelayStream::next(double compute) {
  switch (law_.kind) {
    case Kind::kNone:
      return 0;
    case Kind::kConst:
      return (law_.scale - 1) * compute;
    case Kind::kExp:
    case Kind::kShiftedExp:
      return law_.shift - law_.scale * std::log(1.0 - random_.uniform());
    case Kind::kPareto:
      return law_.scale * std::pow(1.0 - random_.uniform(), -1.0 / law_.shape);
    case Kind::kTrace: {
      double delay = (*law_.trace)[position_];
      position_ = position_ + 1 == law_.trace->size() ? 0 : position_ + 1;
      return delay;
    }
  }
  return 0;
}

}  // namespace yoke::plan
