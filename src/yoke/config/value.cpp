#include "yoke/config/value.h"

#include <fmt/core.h>

#include <charconv>
#include <cmath>

namespace yoke::config {
namespace {

std::string quote(const std::string& text) {
  std::string out = "\"";
  for (char letter : text) {
    auto byte = static_cast<unsigned char>(letter);
    if (letter == '"' || letter == '\\') {
      out += '\\';
      out += letter;
    } else if (letter == '\n') {
      out += "\\n";
    } else if (letter == '\t') {
      out += "\\t";
    } else if (byte < 0x20 || byte == 0x7f) {
      out += fmt::format("\\u{:04X}", byte);
    } else {
      out += letter;
    }
  }
  return out + "\"";
}

// The shortest text that reads back as the same number, and reads as a number with a fraction.
std::string number(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  char buffer[40];
  auto end = std::to_chars(buffer, buffer + sizeof buffer, value).ptr;
  std::string text(buffer, end);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

}  // namespace

std::string to_toml(const Value& value) {
  if (const auto* flag = std::get_if<bool>(&value)) return *flag ? "true" : "false";
  if (const auto* whole = std::get_if<int64_t>(&value)) return fmt::format("{}", *whole);
  if (const auto* real = std::get_if<double>(&value)) return number(*real);
  if (const auto* text = std::get_if<std::string>(&value)) return quote(*text);
  if (const auto* text = std::get_if<Text>(&value)) return quote(text->content);
  std::string out = "[";
  for (const Value& element : std::get<Array>(value)) {
    if (out.size() > 1) out += ", ";
    out += to_toml(element);
  }
  return out + "]";
}

}  // namespace yoke::config
