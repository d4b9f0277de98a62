// What each worker did when, as plain data, for measured and simulated runs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace yoke::metrics {

enum class SpanKind : uint8_t { kForward, kBackward, kWeight, kUpdate, kSend, kReceive };

// "F", "B", "W", "update", "send", "recv"
const char* to_string(SpanKind kind);

// Computation of the device: no transfers, no synchronisation of replicas.
inline bool is_pass(SpanKind kind) {
  return kind <= SpanKind::kWeight;
}

struct TimelineSpan {
  int row = 0;
  SpanKind kind = SpanKind::kForward;
  int number = 0;  // micro-batch, or number of an update
  int chunk = 0;   // of the device's layers
  double start = 0;
  double end = 0;
  int version = -1;  // of the weights used; -1: all passes use the same
  bool operator==(const TimelineSpan&) const = default;
};

struct Timeline {
  std::string name;               // "measured", "simulated"; may be empty
  std::vector<std::string> rows;  // one per worker
  std::vector<TimelineSpan> spans;
  double makespan = 0;           // end of the last span
  bool splits_backward = false;  // B is the gradient of the input only
  // Fraction of the workers' time without a pass.
  double idle_fraction() const;
};

}  // namespace yoke::metrics
