#include "yoke/base/units.h"

#include <fmt/core.h>

#include <array>
#include <charconv>
#include <cmath>
#include <utility>

#include "yoke/base/text.h"

namespace yoke {
namespace {

struct Unit {
  std::string_view name;
  double factor;
};

constexpr std::array kByteUnits = {
    Unit{"", 1},        Unit{"b", 1},         Unit{"k", 1024},       Unit{"kib", 1024},  Unit{"kb", 1e3},
    Unit{"m", 1 << 20}, Unit{"mib", 1 << 20}, Unit{"mb", 1e6},       Unit{"g", 1 << 30}, Unit{"gib", 1 << 30},
    Unit{"gb", 1e9},    Unit{"t", 0x1.0p40},  Unit{"tib", 0x1.0p40}, Unit{"tb", 1e12},
};
constexpr std::array kRateUnits = {
    Unit{"", 1},           Unit{"b/s", 1},          Unit{"kb/s", 1e3},       Unit{"mb/s", 1e6},
    Unit{"gb/s", 1e9},     Unit{"tb/s", 1e12},      Unit{"kbit", 125},       Unit{"mbit", 125e3},
    Unit{"gbit", 125e6},   Unit{"tbit", 125e9},     Unit{"kbit/s", 125},     Unit{"mbit/s", 125e3},
    Unit{"gbit/s", 125e6}, Unit{"gib/s", 0x1.0p30}, Unit{"mib/s", 0x1.0p20},
};
constexpr std::array kTimeUnits = {
    Unit{"", 1},      Unit{"s", 1},  Unit{"ms", 1e-3}, Unit{"us", 1e-6},
    Unit{"ns", 1e-9}, Unit{"m", 60}, Unit{"min", 60},  Unit{"h", 3600},
};

template <size_t N>
std::optional<double> parse_number(std::string_view text, const std::array<Unit, N>& units) {
  std::string trimmed = trim(text);
  double value = 0;
  auto [rest, error] = std::from_chars(trimmed.data(), trimmed.data() + trimmed.size(), value);
  if (error != std::errc{} || !std::isfinite(value) || value < 0) return std::nullopt;
  std::string unit =
      trim(std::string_view(rest, static_cast<size_t>(trimmed.data() + trimmed.size() - rest)));
  for (char& letter : unit) {
    if (letter >= 'A' && letter <= 'Z') letter = static_cast<char>(letter - 'A' + 'a');
  }
  for (const Unit& candidate : units) {
    if (candidate.name == unit) return value * candidate.factor;
  }
  return std::nullopt;
}

}  // namespace

std::optional<int64_t> parse_bytes(std::string_view text) {
  std::optional<double> bytes = parse_number(text, kByteUnits);
  if (!bytes || *bytes >= 0x1.0p63) return std::nullopt;
  return static_cast<int64_t>(std::llround(*bytes));
}

std::optional<double> parse_rate(std::string_view text) {
  return parse_number(text, kRateUnits);
}
std::optional<double> parse_duration(std::string_view text) {
  return parse_number(text, kTimeUnits);
}

std::string format_bytes(double bytes) {
  constexpr std::array kNames = {"B", "kB", "MB", "GB", "TB", "PB", "EB"};
  size_t unit = 0;
  while (std::abs(bytes) >= 1000 && unit + 1 < kNames.size()) {
    bytes /= 1000;
    ++unit;
  }
  return unit == 0 ? fmt::format("{:.0f} B", bytes) : fmt::format("{:.2f} {}", bytes, kNames[unit]);
}

std::string format_duration(double seconds) {
  if (!std::isfinite(seconds)) return "?";
  if (seconds < 1e-3) return fmt::format("{:.1f} us", seconds * 1e6);
  if (seconds < 1) return fmt::format("{:.2f} ms", seconds * 1e3);
  if (seconds < 60) return fmt::format("{:.2f} s", seconds);
  auto whole = static_cast<int64_t>(seconds + 0.5);
  if (whole < 3600) return fmt::format("{}m {:02}s", whole / 60, whole % 60);
  return fmt::format("{}h {:02}m", whole / 3600, whole % 3600 / 60);
}

std::string format_count(double count) {
  std::string digits = fmt::format("{:.0f}", std::abs(count));
  for (int at = static_cast<int>(digits.size()) - 3; at > 0; at -= 3)
    digits.insert(static_cast<size_t>(at), ",");
  return count < 0 ? "-" + digits : digits;
}

std::string format_short(double count) {
  if (std::abs(count) >= 1e9) return fmt::format("{:.2f}G", count / 1e9);
  if (std::abs(count) >= 1e6) return fmt::format("{:.2f}M", count / 1e6);
  if (std::abs(count) >= 1e4) return fmt::format("{:.1f}k", count / 1e3);
  return std::abs(count) >= 100 ? format_count(count) : fmt::format("{:.1f}", count);
}

}  // namespace yoke
