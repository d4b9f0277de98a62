// Round numbers for axes, and numbers as text.
#pragma once

#include <string>
#include <vector>

namespace yoke::report {

enum class Unit {
  kNumber,   // 0.31, 20k
  kPercent,  // a fraction from 0 to 1 as 91%
  kBytes,    // 1.2 GB
  kSeconds,  // 7.1 ms
};

// Steps of 1, 2 or 5 times a power of ten, about `most` of them, the first <= `low` and the last >= `high`.
// Never empty and always increasing, for any input: non-finite values count as 0, an empty range is widened.
std::vector<double> nice_ticks(double low, double high, int most = 6);

// Powers of ten (with 2 and 5 in between for short ranges) around [low, high].
// Requires 0 < low <= high, finite.
std::vector<double> log_ticks(double low, double high);

// A tick's label. `largest`: the axis' largest tick, whose unit and scale all labels share.
std::string tick_text(double value, double largest, Unit unit);

// One value: "0.3127", "91.02%", "1.2 GB", "7.1 ms"; "not finite".
std::string value_text(double value, Unit unit);

}  // namespace yoke::report
