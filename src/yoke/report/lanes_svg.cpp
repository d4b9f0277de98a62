#include "yoke/report/lanes_svg.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "yoke/report/html.h"
#include "yoke/report/ticks.h"

namespace yoke::report {
namespace {

constexpr double kRight = 24, kHeading = 34, kBottom = 46;
constexpr double kLetter = 7.5;  // about the width of a letter
constexpr size_t kMostSpans = 20'000;

// Inside a page, other charts must keep their own style.
constexpr const char* kLanesStyle = R"(<style>
  .timeline { --page: #ffffff; --text: #1f2328; --soft: #5d646d; --grid: #ecebe8; --idle: #f4f3f0;
        --f: #2f6bd0; --b: #d2691e; --w: #1f8f72; --u: #8a5cc2; --t: #7a828c; --on: #ffffff; }
  @media screen and (prefers-color-scheme: dark) {
    .timeline { --page: #1a1d21; --text: #e4e7eb; --soft: #a2a9b3; --grid: #2a2e34; --idle: #22262b;
          --f: #74a5f7; --b: #f0a05a; --w: #55c7a5; --u: #b794ea; --t: #98a1ac; --on: #14171a; } }
  .timeline text { font-family: system-ui, "Segoe UI", Roboto, "DejaVu Sans", Arial, sans-serif; font-size: 13px; fill: var(--text); }
  .timeline .title { font-size: 17px; font-weight: 620; } .timeline .soft { fill: var(--soft); font-size: 12px; }
  .timeline .n { fill: var(--on); font-size: 12px; text-anchor: middle; } .timeline .v { fill: var(--on); font-size: 10px; text-anchor: middle; }
  .timeline .r { text-anchor: end; } .timeline .m { text-anchor: middle; }
  .timeline .page { fill: var(--page); } .timeline .idle { fill: var(--idle); } .timeline .grid { stroke: var(--grid); }
  .timeline .mark { stroke: var(--u); stroke-width: 1.2; }
  .timeline .F { fill: var(--f); } .timeline .B { fill: var(--b); } .timeline .W { fill: var(--w); }
  .timeline .U { fill: var(--u); } .timeline .T { fill: var(--t); }
  .timeline .s1 { opacity: .78; } .timeline .s2 { opacity: .6; } .timeline .s3 { opacity: .46; }
</style>
)";

const char* class_of(Look look) {
  constexpr const char* kClasses[] = {"F", "B", "W", "U", "T"};
  return kClasses[static_cast<size_t>(look)];
}

double text_width(const std::string& text) {
  return kLetter *
         static_cast<double>(std::ranges::count_if(text, [](char c) { return (c & 0xC0) != 0x80; }));
}

// 1, 2 or 5 times a power of ten, for about `most` ticks.
double tick_step(double span, double most) {
  double raw = span / most, power = std::pow(10, std::floor(std::log10(raw)));
  for (double factor : {1.0, 2.0, 5.0}) {
    if (power * factor >= raw) return power * factor;
  }
  return power * 10;
}

class LanesDrawing {
 public:
  explicit LanesDrawing(const LanesPicture& picture) : p_(picture), gap_(picture.row >= 20 ? 6 : 3) {
    double longest = 0;
    left_ = 0;
    for (const Lanes& part : p_.parts) {
      longest = std::max(longest, part.end);
      for (const std::string& row : part.rows) left_ = std::max(left_, text_width(row));
    }
    left_ = std::max(p_.title.empty() ? 40.0 : 92.0, left_ + 8) + 12;
    span_ = longest > 0 ? longest : 1;
    lay_out_legend();
    height_ = top_;
    for (const Lanes& part : p_.parts)
      height_ += heading(part) + static_cast<double>(part.rows.size()) * (p_.row + gap_);
    height_ += kBottom;
  }

  std::string draw() {
    const std::string& name = p_.title.empty() ? p_.label : p_.title;
    out_ = fmt::format(
        "<svg class=\"timeline\" xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" "
        "width=\"{0}\" height=\"{1}\" style=\"max-width:100%;height:auto\" "
        "role=\"img\">\n<title>{2}</title>\n",
        p_.width, height_, escape(name));
    out_ += kLanesStyle;
    out_ += fmt::format("<rect class=\"page\" width=\"{}\" height=\"{}\"/>\n", p_.width, height_);
    if (!p_.title.empty())
      out_ += fmt::format("<text class=\"title\" x=\"24\" y=\"34\">{}</text>\n", escape(p_.title));
    if (!p_.title.empty() && p_.parts.size() == 1)
      out_ += fmt::format("<text class=\"soft\" x=\"24\" y=\"56\">{}</text>\n", escape(told(p_.parts[0])));
    out_ += legend_;
    axis();
    double top = top_;
    for (const Lanes& part : p_.parts) {
      if (heading(part) > 0)
        out_ += fmt::format("<text class=\"soft\" x=\"{}\" y=\"{}\">{}{}</text>\n", edge(), top + 16,
                            part.name.empty() ? "" : escape(part.name) + ": ", escape(told(part)));
      top += heading(part);
      rows(part, top);
      for (size_t i = 0; i < std::min(part.spans.size(), kMostSpans); ++i) bar(part.spans[i], top);
      marks(part, top);
      top += static_cast<double>(part.rows.size()) * (p_.row + gap_);
    }
    return out_ + "</svg>\n";
  }

 private:
  double edge() const { return p_.title.empty() ? 4 : 24; }
  double heading(const Lanes&) const { return p_.parts.size() > 1 ? kHeading : 0; }
  double x(double time) const { return left_ + time / span_ * (p_.width - left_ - kRight); }

  static std::string told(const Lanes& part) {
    if (part.spans.size() <= kMostSpans) return part.about;
    return part.about + fmt::format("; showing the first {} of {} spans", kMostSpans, part.spans.size());
  }

  // Beside the title, or in rows of its own.
  void lay_out_legend() {
    const double first = p_.title.empty() ? 4 : 24;
    double width = 0;
    for (const LanesPicture::Entry& entry : p_.legend) width += 34 + text_width(entry.text);
    const bool beside = !p_.title.empty() && 48 + 10 * text_width(p_.title) / kLetter + width < p_.width;
    double at = beside ? p_.width - kRight - width : first, y = p_.title.empty() ? 6 : beside ? 24 : 66;
    for (const LanesPicture::Entry& entry : p_.legend) {
      const double own = 34 + text_width(entry.text);
      if (at + own > p_.width && at > first) {
        at = first;
        y += 20;
      }
      legend_ += fmt::format(
          "<rect class=\"{}\" x=\"{}\" y=\"{}\" width=\"12\" height=\"12\" rx=\"3\"/><text class=\"soft\" "
          "x=\"{}\" y=\"{}\">{}</text>\n",
          class_of(entry.look), at, y, at + 18, y + 10, escape(entry.text));
      at += own;
    }
    top_ = p_.title.empty() ? y + 30 : std::max(84.0, y + 32);
  }

  void axis() {
    const double step = std::max(p_.steps ? 1.0 : 0.0, tick_step(span_, p_.width / 140));
    const double bottom = height_ - kBottom;
    for (int i = 0; i * step <= span_ * 1.0001; ++i) {
      const double at = x(i * step);
      const std::string label = i == 0     ? "0"
                                : p_.steps ? fmt::format("{}", i * step)
                                           : tick_text(i * step, span_, Unit::kSeconds);
      out_ += fmt::format(
          "<line class=\"grid\" x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1}\" y2=\"{2}\"/><text class=\"soft m\" "
          "x=\"{0:.1f}\" y=\"{3}\">{4}</text>\n",
          at, top_ - 8, bottom, bottom + 18, label);
    }
  }

  void rows(const Lanes& part, double top) {
    for (size_t i = 0; i < part.rows.size(); ++i) {
      const double y = top + static_cast<double>(i) * (p_.row + gap_);
      out_ += fmt::format(
          "<rect class=\"idle\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" rx=\"{}\"/><text class=\"r\" "
          "x=\"{}\" y=\"{}\">{}</text>\n",
          left_, y, p_.width - left_ - kRight, p_.row, p_.row >= 20 ? 4 : 2, left_ - 12, y + p_.row / 2 + 4.5,
          escape(part.rows[i]));
    }
  }

  void marks(const Lanes& part, double top) {
    const double bottom = top + static_cast<double>(part.rows.size()) * (p_.row + gap_) - gap_;
    for (double time : part.marks)
      out_ += fmt::format("<line class=\"mark\" x1=\"{0:.2f}\" x2=\"{0:.2f}\" y1=\"{1}\" y2=\"{2}\"/>\n",
                          x(time), top - 3, bottom + 3);
  }

  void bar(const LaneSpan& span, double first_row) {
    const bool thin = span.low || span.high;
    const double left = x(span.start), width = std::max(0.4, x(span.end) - left);
    const double inset = std::min(0.75, width / 6);
    const double top = first_row + span.row * (p_.row + gap_) + (span.low ? p_.row - 5 : 0);
    const std::string shade = span.shade > 0 ? fmt::format(" s{}", std::min(span.shade, 3)) : "";
    const std::string unit = p_.steps ? "" : " s";
    out_ += fmt::format(
        "<rect class=\"{}{}\" x=\"{:.2f}\" y=\"{}\" width=\"{:.2f}\" height=\"{}\" rx=\"{}\"><title>{} "
        "{:.6g} to {:.6g}{}</title></rect>\n",
        class_of(span.look), shade, left + inset, top, width - 2 * inset, thin ? 5 : p_.row,
        width > 8 ? (p_.row >= 20 ? 3 : 2) : 0, escape(span.tooltip), span.start, span.end, unit);
    if (thin || width <= 4 + text_width(span.text)) return;
    const bool two = !span.below.empty() && p_.row >= 26 && width > 2 + 0.8 * text_width(span.below);
    out_ += fmt::format("<text class=\"n\" x=\"{:.2f}\" y=\"{}\">{}</text>\n", left + width / 2,
                        top + p_.row / 2 + (two ? -0.5 : 4.5), escape(span.text));
    if (two)
      out_ += fmt::format("<text class=\"v\" x=\"{:.2f}\" y=\"{}\">{}</text>\n", left + width / 2,
                          top + p_.row / 2 + 10.5, escape(span.below));
  }

  const LanesPicture& p_;
  double gap_, left_ = 0, top_ = 0, span_ = 1, height_ = 0;
  std::string legend_, out_;
};

}  // namespace

std::string lanes_svg(const LanesPicture& picture) {
  return LanesDrawing(picture).draw();
}

}  // namespace yoke::report
