// Who did what when, as plain data: the same for what a run measured and what the simulator says.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace yoke::metrics {

enum class SpanKind : uint8_t { kForward, kBackward, kWeight, kUpdate, kSend, kReceive };

// "F", "B", "W", "update", "send", "recv"
const char* to_string(SpanKind kind);

// Work of the device itself: no transfers, no agreement among replicas.
inline bool is_pass(SpanKind kind) {
  return kind <= SpanKind::kWeight;
}

struct TimelineSpan {
  int row = 0;
  SpanKind kind = SpanKind::kForward;
  int number = 0;  // the micro-batch; of an update: which
  int chunk = 0;   // of the device's layers
  double start = 0;
  double end = 0;
  bool operator==(const TimelineSpan&) const = default;
};

struct Timeline {
  std::string name;               // "measured", "simulated"; may be empty
  std::vector<std::string> rows;  // one for each worker
  std::vector<TimelineSpan> spans;
  double makespan = 0;           // from 0 to the end of all
  bool splits_backward = false;  // B is the gradient of the input alone
  // Share of the workers' time without a pass.
  double idle_fraction() const;
};

}  // namespace yoke::metrics
