#include "yoke/metrics/timeline.h"

namespace yoke::metrics {

const char* to_string(SpanKind kind) {
  switch (kind) {
    case SpanKind::kForward:
      return "F";
    case SpanKind::kBackward:
      return "B";
    case SpanKind::kWeight:
      return "W";
    case SpanKind::kUpdate:
      return "update";
    case SpanKind::kSend:
      return "send";
    case SpanKind::kReceive:
      return "recv";
  }
  return "";
}

double Timeline::idle_fraction() const {
  double busy = 0;
  for (const TimelineSpan& span : spans)
    if (is_pass(span.kind)) busy += span.end - span.start;
  const double all = makespan * static_cast<double>(rows.size());
  return all > 0 ? 1 - busy / all : 0;
}

}  // namespace yoke::metrics
