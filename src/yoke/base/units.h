// Sizes, rates and durations as people write them: 64K, 25MB, 10gbit, 1.25GB/s, 5ms, 2s.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace yoke {

// "64K" and "64KiB" are 65536; "25MB" is 25,000,000; a bare number is bytes. Empty for anything else,
// including negative numbers and overflow.
std::optional<int64_t> parse_bytes(std::string_view text);

// Bytes per second: "10gbit" is 1.25e9, "1.25GB/s" too; a bare number is bytes per second.
std::optional<double> parse_rate(std::string_view text);

// Seconds: "5ms", "2s", "1.5", "3m", "1h".
std::optional<double> parse_duration(std::string_view text);

std::string format_bytes(double bytes);       // "1.23 MB"
std::string format_duration(double seconds);  // "5.20 ms", "2m 03s"
std::string format_count(double count);       // "61,706"; "1.2k" is format_short
std::string format_short(double count);       // "431k"

}  // namespace yoke
