// What a worker tells when it leaves.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

namespace yoke::ps {

// What it has moved in sparse tables, and what each filter has saved of it.
struct TableCounts {
  int64_t messages = 0;  // sent
  int64_t pulled_ahead = 0;
  int64_t bytes_sent = 0;  // of keys and values, without heads
  int64_t bytes_received = 0;
  int64_t key_cache_saved = 0;    // bytes
  int64_t fixed_point_saved = 0;  // likewise
  int64_t compress_saved = 0;     // likewise
  int64_t rows_held_back = 0;
  int64_t rows_skipped = 0;
  int64_t rows_kept_zero = 0;

  TableCounts& operator+=(const TableCounts& other);
  bool operator==(const TableCounts&) const = default;
};

// In the order of ps.json and of messages.
inline constexpr std::array<std::pair<const char*, int64_t TableCounts::*>, 10> kTableCounts = {{
    {"messages", &TableCounts::messages},
    {"pulled_ahead", &TableCounts::pulled_ahead},
    {"bytes_sent", &TableCounts::bytes_sent},
    {"bytes_received", &TableCounts::bytes_received},
    {"key_cache_saved", &TableCounts::key_cache_saved},
    {"fixed_point_saved", &TableCounts::fixed_point_saved},
    {"compress_saved", &TableCounts::compress_saved},
    {"rows_held_back", &TableCounts::rows_held_back},
    {"rows_skipped", &TableCounts::rows_skipped},
    {"rows_kept_zero", &TableCounts::rows_kept_zero},
}};
static_assert(sizeof(TableCounts) == kTableCounts.size() * sizeof(int64_t));

inline TableCounts& TableCounts::operator+=(const TableCounts& other) {
  for (const auto& [name, count] : kTableCounts) this->*count += other.*count;
  return *this;
}

struct WorkerEnd {
  int64_t peak_memory = 0;  // bytes, of its process or device
  int64_t has_tables = 0;   // 1: `tables` counts
  TableCounts tables{};

  bool operator==(const WorkerEnd&) const = default;
  bool is_sane() const {
    return peak_memory >= 0 && (has_tables == 0 || has_tables == 1) &&
           std::all_of(kTableCounts.begin(), kTableCounts.end(),
                       [&](const auto& one) { return tables.*one.second >= 0; });
  }
};

}  // namespace yoke::ps
