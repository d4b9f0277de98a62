#include "yoke/plan/tensor/tensor_plan.h"

#include <charconv>
#include <utility>

#include "yoke/base/error.h"
#include "yoke/base/text.h"
#include "yoke/config/toml_library.h"
#include "yoke/config/toml_text.h"

namespace yoke::plan {
namespace {

constexpr std::pair<const char*, TensorCut> kCuts[] = {
    {"columns", TensorCut::kColumns},
    {"rows", TensorCut::kRows},
    {"channels_out", TensorCut::kChannelsOut},
    {"channels_in", TensorCut::kChannelsIn},
    {"channels_grouped", TensorCut::kChannelsGrouped},
    {"vocabulary", TensorCut::kVocabulary},
    {"replicated", TensorCut::kReplicated},
};

const char* name_of(TensorCut cut) {
  for (const auto& [name, known] : kCuts) {
    if (known == cut) return name;
  }
  YOKE_CHECK(false, "tensor cut {}", static_cast<int>(cut));
}

[[noreturn]] void unknown_how(const std::string& text) {
  std::vector<std::string> names;
  for (const auto& [name, cut] : kCuts) names.push_back(name);
  throw ConfigError(
      "\"{}\": layers are cut by {}, columns:heads, columns:heads=N, columns:gathered or "
      "channels_out:gathered",
      text, join(names));
}

int64_t parse_count(const std::string& digits, const std::string& text) {
  int64_t value = 0;
  auto [end, failed] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (failed != std::errc{} || end != digits.data() + digits.size() || value < 1)
    throw ConfigError("\"{}\": a number of heads of at least 1 is wanted", text);
  return value;
}

}  // namespace

TensorHow parse_tensor_how(const std::string& text) {
  size_t colon = text.find(':');
  std::string cut = text.substr(0, colon);
  std::string detail = colon == std::string::npos ? "" : text.substr(colon + 1);
  TensorHow how;
  bool known = false;
  for (const auto& [name, value] : kCuts) {
    if (cut != name) continue;
    how.cut = value;
    known = true;
  }
  bool columns = how.cut == TensorCut::kColumns;
  if (columns && detail.starts_with("heads")) {
    how.heads = true;
    if (detail.starts_with("heads="))
      how.head_count = parse_count(detail.substr(6), text);
    else
      known = known && detail == "heads";
  } else if ((columns || how.cut == TensorCut::kChannelsOut) && detail == "gathered") {
    how.gathered = true;
  } else {
    known = known && colon == std::string::npos;
  }
  if (!known) unknown_how(text);
  return how;
}

std::string to_string(const TensorHow& how) {
  std::string text = name_of(how.cut);
  if (how.heads) text += ":heads";
  if (how.head_count != 0) text += "=" + std::to_string(how.head_count);
  if (how.gathered) text += ":gathered";
  return text;
}

TensorPlan parse_tensor_plan(const std::string& text, const std::string& file) {
  toml::parse_result parsed = toml::parse(config::to_ascii(text), file);
  if (!parsed)
    throw ConfigError("{}:{}: {}", file, parsed.error().source().begin.line,
                      std::string(parsed.error().description()));
  TensorPlan plan;
  for (auto&& [key, node] : parsed.table()) {
    std::string name = config::from_ascii(key.str());
    auto line = node.source().begin.line;
    if (name == "heads" && node.is_integer()) {
      plan.heads = *node.value<int64_t>();
      if (plan.heads < 1)
        throw ConfigError("{}:{}: heads = {}: at least 1 is needed", file, line, plan.heads);
      continue;
    }
    auto how = node.value_exact<std::string>();
    if (!how)
      throw ConfigError("{}:{}: `{}`: a text as \"columns\" is wanted. Hint: put names with dots in quotes.",
                        file, line, name);
    try {
      plan.rules.push_back({name, parse_tensor_how(config::from_ascii(*how))});
    } catch (const ConfigError& error) {
      throw ConfigError("{}:{}: `{}` = {}", file, line, name, error.what());
    }
  }
  return plan;
}

std::string to_string(const TensorPlan& plan) {
  std::string text;
  if (plan.heads != 0) text += fmt::format("heads = {}\n", plan.heads);
  for (const TensorRule& rule : plan.rules)
    text += fmt::format("\"{}\" = \"{}\"\n", rule.pattern, to_string(rule.how));
  return text;
}

bool matches(const std::string& pattern, const std::string& name) {
  std::vector<std::string> wanted = split(pattern, '.'), parts = split(name, '.');
  if (wanted.size() != parts.size()) return false;
  auto part_matches = [](std::string_view p, std::string_view n) {
    size_t at_p = 0, at_n = 0, star = std::string_view::npos, resume = 0;
    while (at_n < n.size()) {
      if (at_p < p.size() && p[at_p] == '*') {
        star = at_p++;
        resume = at_n;
      } else if (at_p < p.size() && p[at_p] == n[at_n]) {
        ++at_p;
        ++at_n;
      } else if (star != std::string_view::npos) {
        at_p = star + 1;
        at_n = ++resume;
      } else {
        return false;
      }
    }
    while (at_p < p.size() && p[at_p] == '*') ++at_p;
    return at_p == p.size();
  };
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (!part_matches(wanted[i], parts[i])) return false;
  }
  return true;
}

}  // namespace yoke::plan
