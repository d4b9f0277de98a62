#include "yoke/report/timeline_svg.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "yoke/base/units.h"
#include "yoke/report/html.h"

namespace yoke::report {
namespace {

using metrics::SpanKind;
using metrics::Timeline;
using metrics::TimelineSpan;

constexpr double kTimelineWidth = 1120, kTimelineLeft = 104, kTimelineRight = 24, kTimelineTop = 84,
                 kRow = 30, kRowGap = 6, kTimelineBottom = 46;
constexpr double kHeading = 34;  // above each of several timelines
constexpr size_t kMostSpans = 20'000;

// Chunks of one device differ in shade. Inside a page, other charts must keep their own style.
constexpr const char* kTimelineStyle = R"(<style>
  .timeline { --page: #ffffff; --text: #1f2328; --soft: #5d646d; --grid: #ecebe8; --idle: #f4f3f0;
        --f: #2f6bd0; --b: #d2691e; --w: #1f8f72; --u: #8a5cc2; --t: #7a828c; --on: #ffffff; }
  @media (prefers-color-scheme: dark) {
    .timeline { --page: #1a1d21; --text: #e4e7eb; --soft: #a2a9b3; --grid: #2a2e34; --idle: #22262b;
          --f: #74a5f7; --b: #f0a05a; --w: #55c7a5; --u: #b794ea; --t: #98a1ac; --on: #14171a; } }
  .timeline text { font-family: system-ui, "Segoe UI", Roboto, "DejaVu Sans", Arial, sans-serif; font-size: 13px; fill: var(--text); }
  .timeline .title { font-size: 17px; font-weight: 620; } .timeline .soft { fill: var(--soft); font-size: 12px; }
  .timeline .n { fill: var(--on); font-size: 12px; text-anchor: middle; }
  .timeline .r { text-anchor: end; } .timeline .m { text-anchor: middle; }
  .timeline .page { fill: var(--page); } .timeline .idle { fill: var(--idle); } .timeline .grid { stroke: var(--grid); }
  .timeline .F { fill: var(--f); } .timeline .B { fill: var(--b); } .timeline .W { fill: var(--w); }
  .timeline .U { fill: var(--u); } .timeline .T { fill: var(--t); }
  .timeline .s1 { opacity: .78; } .timeline .s2 { opacity: .6; } .timeline .s3 { opacity: .46; }
</style>
)";

// 1, 2 or 5 times a power of ten, for about eight ticks.
double tick_step(double span) {
  double raw = span / 8, power = std::pow(10, std::floor(std::log10(raw)));
  for (double factor : {1.0, 2.0, 5.0}) {
    if (power * factor >= raw) return power * factor;
  }
  return power * 10;
}

const char* class_of(SpanKind kind) {
  switch (kind) {
    case SpanKind::kForward:
      return "F";
    case SpanKind::kBackward:
      return "B";
    case SpanKind::kWeight:
      return "W";
    case SpanKind::kUpdate:
      return "U";
    default:
      return "T";
  }
}

class Picture {
 public:
  explicit Picture(const std::vector<Timeline>& timelines) : timelines_(timelines) {
    double longest = 0;
    height_ = kTimelineTop;
    for (const Timeline& timeline : timelines) {
      longest = std::max(longest, timeline.makespan);
      height_ += heading() + static_cast<double>(timeline.rows.size()) * (kRow + kRowGap);
    }
    height_ += kTimelineBottom;
    span_ = longest > 0 ? longest : 1;
  }

  std::string draw(const std::string& title) {
    out_ = fmt::format(
        "<svg class=\"timeline\" xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" "
        "width=\"{0}\" height=\"{1}\" style=\"max-width:100%;height:auto\" "
        "role=\"img\">\n<title>{2}</title>\n",
        kTimelineWidth, height_, escape(title));
    out_ += kTimelineStyle;
    out_ += fmt::format("<rect class=\"page\" width=\"{}\" height=\"{}\"/>\n", kTimelineWidth, height_);
    out_ += fmt::format("<text class=\"title\" x=\"24\" y=\"34\">{}</text>\n", escape(title));
    if (timelines_.size() == 1)
      out_ += fmt::format("<text class=\"soft\" x=\"24\" y=\"56\">{}</text>\n", summary(timelines_[0]));
    legend();
    axis();
    double top = kTimelineTop;
    for (const Timeline& timeline : timelines_) {
      if (timelines_.size() > 1)
        out_ += fmt::format("<text class=\"soft\" x=\"24\" y=\"{}\">{}: {}</text>\n", top + 16,
                            escape(timeline.name), summary(timeline));
      top += heading();
      rows(timeline, top);
      for (size_t i = 0; i < std::min(timeline.spans.size(), kMostSpans); ++i) bar(timeline.spans[i], top);
      top += static_cast<double>(timeline.rows.size()) * (kRow + kRowGap);
    }
    return out_ + "</svg>\n";
  }

 private:
  double heading() const { return timelines_.size() > 1 ? kHeading : 0; }
  double x(double time) const {
    return kTimelineLeft + time / span_ * (kTimelineWidth - kTimelineLeft - kTimelineRight);
  }

  static std::string summary(const Timeline& timeline) {
    std::string text = fmt::format("{} in all, {:.1f} % idle", format_duration(timeline.makespan),
                                   100 * timeline.idle_fraction());
    if (timeline.spans.size() > kMostSpans)
      text += fmt::format("; showing the first {} of {} spans", kMostSpans, timeline.spans.size());
    return text;
  }

  bool has(SpanKind kind) const {
    return std::any_of(timelines_.begin(), timelines_.end(), [&](const Timeline& timeline) {
      return std::any_of(timeline.spans.begin(), timeline.spans.end(),
                         [&](const TimelineSpan& span) { return span.kind == kind; });
    });
  }

  void legend() {
    bool splits = std::any_of(timelines_.begin(), timelines_.end(),
                              [](const Timeline& timeline) { return timeline.splits_backward; });
    double right = kTimelineWidth - kTimelineRight;
    auto entry = [&](const char* colour, const char* text, double width) {
      right -= width;
      out_ += fmt::format(
          "<rect class=\"{}\" x=\"{}\" y=\"24\" width=\"12\" height=\"12\" rx=\"3\"/><text class=\"soft\" "
          "x=\"{}\" y=\"34\">{}</text>\n",
          colour, right, right + 18, text);
    };
    if (has(SpanKind::kSend) || has(SpanKind::kReceive)) entry("T", "transfers", 86);
    if (has(SpanKind::kUpdate)) entry("U", "update", 72);
    if (splits) entry("W", "weight gradient", 116);
    entry("B", splits ? "input gradient" : "backward", splits ? 110 : 86);
    entry("F", "forward", 76);
  }

  void axis() {
    double step = tick_step(span_), bottom = height_ - kTimelineBottom;
    for (int i = 0; i * step <= span_ * 1.0001; ++i) {
      double at = x(i * step);
      out_ += fmt::format(
          "<line class=\"grid\" x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1}\" y2=\"{2}\"/><text class=\"soft m\" "
          "x=\"{0:.1f}\" y=\"{3}\">{4}</text>\n",
          at, kTimelineTop - 8, bottom, bottom + 18, i == 0 ? "0" : format_duration(i * step));
    }
  }

  void rows(const Timeline& timeline, double top) {
    for (size_t i = 0; i < timeline.rows.size(); ++i) {
      double y = top + static_cast<double>(i) * (kRow + kRowGap);
      out_ += fmt::format(
          "<rect class=\"idle\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" rx=\"4\"/><text class=\"r\" "
          "x=\"{}\" y=\"{}\">{}</text>\n",
          kTimelineLeft, y, kTimelineWidth - kTimelineLeft - kTimelineRight, kRow, kTimelineLeft - 12,
          y + kRow / 2 + 4.5, escape(timeline.rows[i]));
    }
  }

  // Passes fill the row; updates are at its lower edge, transfers at the upper one.
  void bar(const TimelineSpan& span, double first_row) {
    const bool pass = metrics::is_pass(span.kind);
    double left = x(span.start), width = std::max(0.4, x(span.end) - left), inset = std::min(0.75, width / 6);
    double top = first_row + span.row * (kRow + kRowGap) + (span.kind == SpanKind::kUpdate ? kRow - 5 : 0);
    std::string shade = span.chunk > 0 ? fmt::format(" s{}", std::min(span.chunk, 3)) : "";
    out_ += fmt::format(
        "<rect class=\"{}{}\" x=\"{:.2f}\" y=\"{}\" width=\"{:.2f}\" height=\"{}\" rx=\"{}\"><title>{}{} "
        "{:.6g} to {:.6g} s</title></rect>\n",
        class_of(span.kind), shade, left + inset, top, width - 2 * inset, pass ? kRow : 5, width > 8 ? 3 : 0,
        to_string(span.kind), span.number, span.start, span.end);
    std::string number = std::to_string(span.number);
    if (pass && width > 4 + 7.5 * static_cast<double>(number.size()))
      out_ += fmt::format("<text class=\"n\" x=\"{:.2f}\" y=\"{}\">{}</text>\n", left + width / 2,
                          top + kRow / 2 + 4.5, number);
  }

  const std::vector<Timeline>& timelines_;
  double span_ = 1;
  double height_ = 0;
  std::string out_;
};

}  // namespace

std::string timeline_svg(const std::string& title, const std::vector<Timeline>& timelines) {
  return Picture(timelines).draw(title);
}

}  // namespace yoke::report
