#include "yoke/config/fields.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

#include "yoke/base/text.h"
#include "yoke/base/units.h"

namespace yoke::config {
namespace {

template <class Number>
std::optional<Number> parse_whole_text(const std::string& text) {
  Number value{};
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<bool> as_bool(const Value& value) {
  if (const auto* flag = std::get_if<bool>(&value)) return *flag;
  if (const auto* text = std::get_if<Text>(&value)) {
    if (text->content == "true" || text->content == "1" || text->content == "yes" || text->content == "on")
      return true;
    if (text->content == "false" || text->content == "0" || text->content == "no" || text->content == "off")
      return false;
  }
  return std::nullopt;
}

std::optional<int64_t> as_integer(const Value& value) {
  if (const auto* whole = std::get_if<int64_t>(&value)) return *whole;
  if (const auto* text = std::get_if<Text>(&value)) return parse_whole_text<int64_t>(text->content);
  return std::nullopt;
}

std::optional<double> as_number(const Value& value) {
  if (const auto* real = std::get_if<double>(&value)) return *real;
  if (const auto* whole = std::get_if<int64_t>(&value)) return static_cast<double>(*whole);
  if (const auto* text = std::get_if<Text>(&value)) return parse_whole_text<double>(text->content);
  return std::nullopt;
}

std::optional<std::string> as_text(const Value& value) {
  if (const auto* text = std::get_if<std::string>(&value)) return *text;
  if (const auto* text = std::get_if<Text>(&value)) return text->content;
  return std::nullopt;
}

// A TOML array, or "1,2,3" and "[1, 2, 3]" as a text.
std::optional<Array> as_array(const Value& value) {
  if (const auto* array = std::get_if<Array>(&value)) return *array;
  const auto* text = std::get_if<Text>(&value);
  if (text == nullptr) return std::nullopt;
  std::string inner = trim(text->content);
  if (inner.size() >= 2 && inner.front() == '[' && inner.back() == ']')
    inner = inner.substr(1, inner.size() - 2);
  Array array;
  for (std::string& part : split(trim(inner), ',')) array.push_back(Text{std::move(part)});
  return array;
}

std::string range_text(const char* kind, double least, double most) {
  std::string text = kind;
  if (most < 1e300) return fmt::format("{} from {} to {}", text, least, most);
  return fmt::format("{} of at least {}", text, least);
}

std::string integer_range(int64_t least, int64_t most) {
  if (most == kNoLimit) return fmt::format("an integer of at least {}", least);
  return fmt::format("an integer from {} to {}", least, most);
}

template <class Element, class Convert>
std::string set_list(std::vector<Element>& target, const Value& value, Convert convert,
                     const char* accepted) {
  std::optional<Array> array = as_array(value);
  if (!array) return accepted;
  std::vector<Element> elements;
  for (const Value& element : *array) {
    auto converted = convert(element);
    if (!converted) return accepted;
    elements.push_back(*converted);
  }
  target = std::move(elements);
  return "";
}

}  // namespace

void Fields::boolean(std::string name, bool& value, std::string help) {
  add({std::move(name),
       "true or false",
       std::move(help),
       {},
       [&value] { return Value(value); },
       [&value](const Value& given) -> std::string {
         auto flag = as_bool(given);
         if (!flag) return "true or false";
         value = *flag;
         return "";
       }});
}

void Fields::integer(std::string name, int64_t& value, std::string help, int64_t least, int64_t most) {
  add({std::move(name),
       "integer",
       std::move(help),
       {},
       [&value] { return Value(value); },
       [&value, least, most](const Value& given) -> std::string {
         auto whole = as_integer(given);
         if (!whole || *whole < least || *whole > most) return integer_range(least, most);
         value = *whole;
         return "";
       }});
}

void Fields::number(std::string name, double& value, std::string help, double least, double most) {
  add({std::move(name),
       "number",
       std::move(help),
       {},
       [&value] { return Value(value); },
       [&value, least, most](const Value& given) -> std::string {
         auto real = as_number(given);
         if (!real || !std::isfinite(*real) || *real < least || *real > most)
           return range_text("a number", least, most);
         value = *real;
         return "";
       }});
}

void Fields::text(std::string name, std::string& value, std::string help) {
  checked_text(std::move(name), value, std::move(help), [](const std::string&) { return std::string(); });
}

void Fields::choice(std::string name, std::string& value, std::vector<std::string> accepted,
                    std::string help) {
  Field field{
      std::move(name), "one of a list", std::move(help), accepted, [&value] { return Value(value); }, {}};
  field.set = [&value, accepted = std::move(accepted)](const Value& given) -> std::string {
    auto text = as_text(given);
    if (text && std::find(accepted.begin(), accepted.end(), *text) != accepted.end()) {
      value = *text;
      return "";
    }
    std::vector<std::string> shown;
    for (const std::string& name_of_choice : accepted) {
      if (!name_of_choice.empty()) shown.push_back(name_of_choice);
    }
    std::string near = text ? nearest_name(*text, shown) : "";
    return "one of " + join(shown) + (near.empty() ? "" : fmt::format(" (did you mean {}?)", near));
  };
  add(std::move(field));
}

void Fields::bytes(std::string name, int64_t& value, std::string help) {
  add({std::move(name),
       "size",
       std::move(help),
       {},
       [&value] { return Value(value); },
       [&value](const Value& given) -> std::string {
         auto whole = std::get_if<int64_t>(&given);
         auto text = as_text(given);
         auto size = whole != nullptr && *whole >= 0 ? std::optional(*whole)
                     : text                          ? parse_bytes(*text)
                                                     : std::nullopt;
         if (!size) return "a size such as 64K, 25MB or 1048576";
         value = *size;
         return "";
       }});
}

void Fields::duration(std::string name, double& seconds, std::string help) {
  add({std::move(name),
       "duration",
       std::move(help),
       {},
       [&seconds] { return Value(seconds); },
       [&seconds](const Value& given) -> std::string {
         auto text = as_text(given);
         auto parsed = text ? parse_duration(*text) : as_number(given);
         if (!parsed || *parsed < 0) return "a duration such as 5ms, 2s or 1.5";
         seconds = *parsed;
         return "";
       }});
}

void Fields::integers(std::string name, std::vector<int64_t>& value, std::string help) {
  add({std::move(name),
       "list of integers",
       std::move(help),
       {},
       [&value] { return Value(Array(value.begin(), value.end())); },
       [&value](const Value& given) {
         return set_list(value, given, as_integer, "integers such as [784, 256, 10] or 784,256,10");
       }});
}

void Fields::numbers(std::string name, std::vector<double>& value, std::string help) {
  add({std::move(name),
       "list of numbers",
       std::move(help),
       {},
       [&value] { return Value(Array(value.begin(), value.end())); },
       [&value](const Value& given) {
         return set_list(value, given, as_number, "numbers such as [30, 60, 80] or 30,60,80");
       }});
}

void Fields::checked_text(std::string name, std::string& value, std::string help,
                          std::function<std::string(const std::string&)> check) {
  add({std::move(name),
       "text",
       std::move(help),
       {},
       [&value] { return Value(value); },
       [&value, check = std::move(check)](const Value& given) -> std::string {
         auto text = as_text(given);
         if (!text) return "a text";
         std::string accepted = check(*text);
         if (accepted.empty()) value = *text;
         return accepted;
       }});
}

}  // namespace yoke::config
