#include "yoke/report/timeline_svg.h"

#include <fmt/core.h>

#include <algorithm>

#include "yoke/base/units.h"
#include "yoke/report/lanes_svg.h"

namespace yoke::report {
namespace {

using metrics::SpanKind;
using metrics::Timeline;
using metrics::TimelineSpan;

Look look_of(SpanKind kind) {
  switch (kind) {
    case SpanKind::kForward:
      return Look::kBlue;
    case SpanKind::kBackward:
      return Look::kOrange;
    case SpanKind::kWeight:
      return Look::kGreen;
    case SpanKind::kUpdate:
      return Look::kViolet;
    default:
      return Look::kGrey;
  }
}

// Passes fill the row; updates are at its lower edge, transfers at the upper one.
LaneSpan lane_span(const TimelineSpan& span) {
  const bool pass = metrics::is_pass(span.kind), update = span.kind == SpanKind::kUpdate;
  LaneSpan lane{span.row, span.start, span.end, look_of(span.kind), span.chunk, update, !pass && !update};
  lane.text = std::to_string(span.number);
  lane.tooltip = to_string(span.kind) + lane.text;
  if (span.version >= 0) {
    lane.below = fmt::format("v{}", span.version);
    lane.tooltip += fmt::format(", weights of version {},", span.version);
  }
  return lane;
}

Lanes lanes_of(const Timeline& timeline) {
  Lanes lanes{.name = timeline.name, .rows = timeline.rows, .end = timeline.makespan};
  lanes.about = fmt::format("{} in all, {:.1f} % idle", format_duration(timeline.makespan),
                            100 * timeline.idle_fraction());
  for (const TimelineSpan& span : timeline.spans) lanes.spans.push_back(lane_span(span));
  return lanes;
}

bool any_span(const std::vector<Timeline>& timelines, auto is) {
  return std::any_of(timelines.begin(), timelines.end(), [&](const Timeline& timeline) {
    return std::any_of(timeline.spans.begin(), timeline.spans.end(), is);
  });
}

std::vector<LanesPicture::Entry> legend_of(const std::vector<Timeline>& timelines) {
  const bool splits = std::any_of(timelines.begin(), timelines.end(),
                                  [](const Timeline& timeline) { return timeline.splits_backward; });
  std::vector<LanesPicture::Entry> legend = {{Look::kBlue, "forward"},
                                             {Look::kOrange, splits ? "input gradient" : "backward"}};
  if (splits) legend.push_back({Look::kGreen, "weight gradient"});
  if (any_span(timelines, [](const TimelineSpan& span) { return span.kind == SpanKind::kUpdate; }))
    legend.push_back({Look::kViolet, "update"});
  if (any_span(timelines, [](const TimelineSpan& span) { return span.kind >= SpanKind::kSend; }))
    legend.push_back({Look::kGrey, "transfers"});
  return legend;
}

}  // namespace

std::string timeline_svg(const std::string& title, const std::vector<Timeline>& timelines) {
  LanesPicture picture{.title = title, .legend = legend_of(timelines)};
  for (const Timeline& timeline : timelines) picture.parts.push_back(lanes_of(timeline));
  return lanes_svg(picture);
}

}  // namespace yoke::report
