#include "yoke/report/graph_svg.h"

#include <fmt/core.h>

#include <algorithm>

#include "yoke/base/error.h"
#include "yoke/report/html.h"

namespace yoke::report {
namespace {

constexpr double kLeastWidth = 760, kGraphSide = 40, kGraphTop = 88, kGraphBottom = 34, kNarrowStep = 16,
                 kWideStep = 150, kLineHeight = 20;
constexpr int kGroupColours = 8;
constexpr double kLabelRadius = 9;  // smaller nodes have no labels

constexpr const char* kGraphStyle = R"(<style>
  svg { --page: #ffffff; --text: #1f2328; --soft: #5d646d; --line: #d5d4d0; --cross: #1f2328; --on: #ffffff;
        --g0: #2f6bd0; --g1: #d2691e; --g2: #1f8f72; --g3: #8a5cc2; --g4: #b8456f; --g5: #7a828c; --g6: #a58a00; --g7: #0f8fa8; }
  @media (prefers-color-scheme: dark) {
    svg { --page: #1a1d21; --text: #e4e7eb; --soft: #a2a9b3; --line: #3a3f46; --cross: #e4e7eb; --on: #14171a;
          --g0: #74a5f7; --g1: #f0a05a; --g2: #55c7a5; --g3: #b794ea; --g4: #ec86a9; --g5: #98a1ac; --g6: #d9bf4a; --g7: #5cc6dc; } }
  text { font-family: system-ui, "Segoe UI", Roboto, "DejaVu Sans", Arial, sans-serif; font-size: 13px; fill: var(--text); }
  .title { font-size: 17px; font-weight: 620; } .soft { fill: var(--soft); font-size: 12px; }
  .n { fill: var(--on); font-size: 11px; text-anchor: middle; } .page { fill: var(--page); }
  .on { fill: var(--soft); font-size: 9px; text-anchor: middle; }
  line { stroke: var(--line); stroke-width: 1; } .cross { stroke: var(--cross); stroke-width: 2.4; }
  .g0 { fill: var(--g0); } .g1 { fill: var(--g1); } .g2 { fill: var(--g2); } .g3 { fill: var(--g3); }
  .g4 { fill: var(--g4); } .g5 { fill: var(--g5); } .g6 { fill: var(--g6); } .g7 { fill: var(--g7); }
</style>
)";

size_t at(int index) {
  return static_cast<size_t>(index);
}

class Drawing {
 public:
  explicit Drawing(const GraphPicture& picture) : picture_(picture) {
    column_.resize(picture.nodes.size());
    for (const GraphLine& line : picture.lines) {
      YOKE_CHECK(line.from >= 0 && line.from < line.to && at(line.to) < picture.nodes.size(),
                 "a line from node {} to {}", line.from, line.to);
    }
    // Lines lead to later nodes: sorted by where they end, every column is known when it is needed.
    std::vector<GraphLine> lines = picture.lines;
    std::sort(lines.begin(), lines.end(), [](const auto& a, const auto& b) { return a.to < b.to; });
    for (const GraphLine& line : lines)
      column_[at(line.to)] = std::max(column_[at(line.to)], column_[at(line.from)] + 1);
    for (int column : column_) {
      if (at(column) >= heights_.size()) heights_.resize(at(column) + 1);
      row_.push_back(heights_[at(column)]++);
    }
    tallest_ = heights_.empty() ? 1 : *std::max_element(heights_.begin(), heights_.end());
    double columns = static_cast<double>(std::max<size_t>(heights_.size(), 2) - 1);
    step_ = std::clamp((kLeastWidth - 2 * kGraphSide) / columns, kNarrowStep, kWideStep);
    width_ = std::max(kLeastWidth, columns * step_ + 2 * kGraphSide);
    radius_ = std::clamp(step_ * 0.3, 4.0, 13.0);
    legend_ = kGraphTop + tallest_ * (2 * radius_ + 12) + 10;
    height_ = legend_ + static_cast<double>((picture.groups.size() + 1) / 2) * kLineHeight + kGraphBottom;
  }

  std::string draw() {
    out_ = fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0f} {1:.0f}\" width=\"{0:.0f}\" "
        "height=\"{1:.0f}\" role=\"img\">\n<title>{2}</title>\n",
        width_, height_, escape(picture_.title));
    out_ += kGraphStyle;
    out_ += fmt::format("<rect class=\"page\" width=\"{:.0f}\" height=\"{:.0f}\"/>\n", width_, height_);
    out_ += fmt::format("<text class=\"title\" x=\"24\" y=\"34\">{}</text>\n", escape(picture_.title));
    out_ += fmt::format("<text class=\"soft\" x=\"24\" y=\"56\">{}</text>\n", escape(picture_.subtitle));
    lines(false);
    lines(true);  // lines between groups are drawn above the others
    for (size_t i = 0; i < picture_.nodes.size(); ++i) node(i);
    for (size_t i = 0; i < picture_.groups.size(); ++i) legend(i);
    return out_ + "</svg>\n";
  }

 private:
  double x(int node) const { return kGraphSide + column_[at(node)] * step_; }
  double y(int node) const {
    double first = (tallest_ - heights_[at(column_[at(node)])]) / 2.0;
    return kGraphTop + (first + row_[at(node)] + 0.5) * (2 * radius_ + 12);
  }
  static int colour(int group) { return group % kGroupColours; }

  void lines(bool crossing) {
    for (const GraphLine& line : picture_.lines) {
      if ((picture_.nodes[at(line.from)].group != picture_.nodes[at(line.to)].group) != crossing) continue;
      out_ +=
          fmt::format("<line{} x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\"{}\n",
                      crossing ? " class=\"cross\"" : "", x(line.from), y(line.from), x(line.to), y(line.to),
                      line.title.empty() ? "/>" : "><title>" + escape(line.title) + "</title></line>");
      if (crossing && !line.label.empty() && radius_ >= kLabelRadius)
        out_ += fmt::format("<text class=\"on\" x=\"{:.1f}\" y=\"{:.1f}\">{}</text>\n",
                            (x(line.from) + x(line.to)) / 2, (y(line.from) + y(line.to)) / 2 - 3,
                            escape(line.label));
    }
  }

  void node(size_t index) {
    const GraphNode& node = picture_.nodes[index];
    const int number = static_cast<int>(index);
    out_ += fmt::format(
        "<circle class=\"g{}\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{:.1f}\"><title>{}</title></circle>\n",
        colour(node.group), x(number), y(number), radius_, escape(node.name));
    if (!node.label.empty() && radius_ >= kLabelRadius)
      out_ += fmt::format("<text class=\"on\" x=\"{:.1f}\" y=\"{:.1f}\">{}</text>\n", x(number),
                          y(number) + radius_ + 9, escape(node.label));
    if (radius_ >= 9)
      out_ += fmt::format("<text class=\"n\" x=\"{:.1f}\" y=\"{:.1f}\">{}</text>\n", x(number), y(number) + 4,
                          node.group);
  }

  void legend(size_t index) {
    double left = index % 2 == 0 ? 24 : width_ / 2,
           top = legend_ + static_cast<double>(index / 2) * kLineHeight;
    out_ += fmt::format(
        "<rect class=\"g{}\" x=\"{}\" y=\"{:.1f}\" width=\"12\" height=\"12\" rx=\"3\"/><text class=\"soft\" "
        "x=\"{}\" y=\"{:.1f}\">{}</text>\n",
        colour(static_cast<int>(index)), left, top, left + 18, top + 10, escape(picture_.groups[index]));
  }

  const GraphPicture& picture_;
  std::vector<int> column_;
  std::vector<int> row_;
  std::vector<int> heights_;  // [column]: nodes in it
  int tallest_ = 1;
  double step_ = 0, width_ = 0, radius_ = 0, legend_ = 0, height_ = 0;
  std::string out_;
};

}  // namespace

std::string graph_svg(const GraphPicture& picture) {
  return Drawing(picture).draw();
}

}  // namespace yoke::report
