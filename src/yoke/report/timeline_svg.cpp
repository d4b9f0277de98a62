#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "yoke/base/units.h"
#include "yoke/sim/pipeline.h"

namespace yoke::sim {
namespace {

constexpr double kWidth = 1120, kLeft = 104, kRight = 24, kTop = 84, kRow = 30, kGap = 6, kBottom = 46;

// Chunks of one device are told apart by their shade.
constexpr const char* kStyle = R"(<style>
  svg { --page: #ffffff; --text: #1f2328; --soft: #5d646d; --grid: #ecebe8; --idle: #f4f3f0;
        --f: #2f6bd0; --b: #d2691e; --w: #1f8f72; --u: #8a5cc2; --on: #ffffff; }
  @media (prefers-color-scheme: dark) {
    svg { --page: #1a1d21; --text: #e4e7eb; --soft: #a2a9b3; --grid: #2a2e34; --idle: #22262b;
          --f: #74a5f7; --b: #f0a05a; --w: #55c7a5; --u: #b794ea; --on: #14171a; } }
  text { font-family: system-ui, "Segoe UI", Roboto, "DejaVu Sans", Arial, sans-serif; font-size: 13px; fill: var(--text); }
  .title { font-size: 17px; font-weight: 620; } .soft { fill: var(--soft); font-size: 12px; }
  .n { fill: var(--on); font-size: 12px; text-anchor: middle; } .r { text-anchor: end; } .m { text-anchor: middle; }
  .page { fill: var(--page); } .idle { fill: var(--idle); } .grid { stroke: var(--grid); }
  .F { fill: var(--f); } .B { fill: var(--b); } .W { fill: var(--w); } .U { fill: var(--u); }
  .s1 { opacity: .78; } .s2 { opacity: .6; } .s3 { opacity: .46; }
</style>
)";

std::string escaped(const std::string& text) {
  std::string out;
  for (char c : text) {
    if (c == '&')
      out += "&amp;";
    else if (c == '<')
      out += "&lt;";
    else
      out += c;
  }
  return out;
}

// 1, 2 or 5 times a power of ten, for about eight ticks.
double tick_step(double span) {
  double raw = span / 8, power = std::pow(10, std::floor(std::log10(raw)));
  for (double factor : {1.0, 2.0, 5.0}) {
    if (power * factor >= raw) return power * factor;
  }
  return power * 10;
}

const char* class_of(plan::ScheduleOp op) {
  switch (op) {
    case plan::ScheduleOp::kForward:
      return "F";
    case plan::ScheduleOp::kBackward:
      return "B";
    case plan::ScheduleOp::kWeight:
      return "W";
    default:
      return "U";
  }
}

class Picture {
 public:
  Picture(const plan::Schedule& schedule, const PipelineRun& run)
      : schedule_(schedule), run_(run), span_(run.makespan > 0 ? run.makespan : 1) {
    height_ = kTop + static_cast<double>(schedule.workers.size()) * (kRow + kGap) + kBottom;
  }

  std::string draw(const std::string& title) {
    out_ = fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" height=\"{1}\" "
        "role=\"img\">\n"
        "<title>{2}</title>\n",
        kWidth, height_, escaped(title));
    out_ += kStyle;
    out_ += fmt::format("<rect class=\"page\" width=\"{}\" height=\"{}\"/>\n", kWidth, height_);
    out_ += fmt::format("<text class=\"title\" x=\"24\" y=\"34\">{}</text>\n", escaped(title));
    out_ += fmt::format("<text class=\"soft\" x=\"24\" y=\"56\">{} in all, {:.1f} % idle</text>\n",
                        format_duration(run_.makespan), 100 * run_.bubble_fraction());
    legend();
    axis();
    rows();
    for (const PipelineSpan& span : run_.spans) bar(span);
    return out_ + "</svg>\n";
  }

 private:
  double x(double time) const { return kLeft + time / span_ * (kWidth - kLeft - kRight); }
  static double y(int worker) { return kTop + worker * (kRow + kGap); }

  void legend() {
    bool splits = schedule_.request.kind == plan::ScheduleKind::kZbH1;
    bool updates = std::any_of(run_.spans.begin(), run_.spans.end(),
                               [](const PipelineSpan& s) { return s.op == plan::ScheduleOp::kUpdate; });
    double right = kWidth - kRight;
    auto entry = [&](const char* colour, const char* text, double width) {
      right -= width;
      out_ += fmt::format(
          "<rect class=\"{}\" x=\"{}\" y=\"24\" width=\"12\" height=\"12\" rx=\"3\"/><text class=\"soft\" "
          "x=\"{}\" y=\"34\">{}</text>\n",
          colour, right, right + 18, text);
    };
    if (updates) entry("U", "gradients of the replicas", 168);
    if (splits) entry("W", "weight gradient", 116);
    entry("B", splits ? "input gradient" : "backward", splits ? 110 : 86);
    entry("F", "forward", 76);
  }

  void axis() {
    double step = tick_step(span_), bottom = height_ - kBottom;
    for (int i = 0; i * step <= span_ * 1.0001; ++i) {
      double at = x(i * step);
      out_ += fmt::format(
          "<line class=\"grid\" x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1}\" y2=\"{2}\"/><text class=\"soft m\" "
          "x=\"{0:.1f}\" y=\"{3}\">{4}</text>\n",
          at, kTop - 8, bottom, bottom + 18, i == 0 ? "0" : format_duration(i * step));
    }
  }

  void rows() {
    for (size_t i = 0; i < schedule_.workers.size(); ++i) {
      const plan::ScheduleWorker& worker = schedule_.workers[i];
      bool replicated = schedule_.request.replicas_of(worker.stage) > 1;
      std::string name = replicated ? fmt::format("stage {}.{}", worker.stage, worker.replica)
                                    : fmt::format("stage {}", worker.stage);
      double top = y(static_cast<int>(i));
      out_ += fmt::format(
          "<rect class=\"idle\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" rx=\"4\"/><text class=\"r\" "
          "x=\"{}\" y=\"{}\">{}</text>\n",
          kLeft, top, kWidth - kLeft - kRight, kRow, kLeft - 12, top + kRow / 2 + 4.5, name);
    }
  }

  void bar(const PipelineSpan& span) {
    bool update = span.op == plan::ScheduleOp::kUpdate;
    double left = x(span.start), width = std::max(0.4, x(span.end) - left), inset = std::min(0.75, width / 6);
    double top = y(span.worker) + (update ? kRow - 5 : 0), height = update ? 5 : kRow;
    std::string shade = span.chunk > 0 ? fmt::format(" s{}", std::min(span.chunk, 3)) : "";
    out_ += fmt::format(
        "<rect class=\"{}{}\" x=\"{:.2f}\" y=\"{}\" width=\"{:.2f}\" height=\"{}\" rx=\"{}\"><title>{}{} "
        "{:.6g} to {:.6g} s</title></rect>\n",
        class_of(span.op), shade, left + inset, top, width - 2 * inset, height, width > 8 ? 3 : 0,
        plan::to_string(span.op), update ? span.version : span.microbatch, span.start, span.end);
    std::string number = std::to_string(span.microbatch);
    if (!update && width > 4 + 7.5 * static_cast<double>(number.size()))
      out_ += fmt::format("<text class=\"n\" x=\"{:.2f}\" y=\"{}\">{}</text>\n", left + width / 2,
                          top + kRow / 2 + 4.5, number);
  }

  const plan::Schedule& schedule_;
  const PipelineRun& run_;
  const double span_;
  double height_ = 0;
  std::string out_;
};

}  // namespace

std::string pipeline_svg(const plan::Schedule& schedule, const PipelineRun& run, const std::string& title) {
  return Picture(schedule, run).draw(title);
}

}  // namespace yoke::sim
