#include "yoke/report/class_section.h"

#include <fmt/core.h>

#include <algorithm>
#include <numeric>

#include "yoke/report/html.h"

namespace yoke::report {
namespace {

using metrics::ClassResults;

constexpr double kLeft = 110, kTop = 96, kWidth = 640;
constexpr size_t kNameLength = 13, kListed = 10;

std::string shortened(const std::string& name) {
  if (name.size() <= kNameLength) return name;
  size_t end = kNameLength - 1;
  while (end > 0 && (static_cast<unsigned char>(name[end]) & 0xC0) == 0x80)
    --end;  // whole characters of UTF-8
  return name.substr(0, end) + "…";
}

double share(int64_t part, int64_t whole) {
  return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0;
}

std::string cell_svg(const ClassResults& results, size_t row, size_t column, double side) {
  const int64_t count = results.confusion[row][column];
  const double part = share(count, results.samples[row]);
  const double x = kLeft + side * static_cast<double>(column), y = kTop + side * static_cast<double>(row);
  std::string svg = fmt::format(
      R"(<g><title>{} taken for {}: {} of {} ({:.1f}%)</title><rect class="bar {}" x="{:.1f}" y="{:.1f}" )"
      R"(width="{:.1f}" height="{:.1f}" fill-opacity="{:.3f}"/>)",
      escape(results.name_of(static_cast<int64_t>(row))),
      escape(results.name_of(static_cast<int64_t>(column))), count, results.samples[row], 100 * part,
      row == column ? "c3" : "c2", x, y, side - 1, side - 1, count == 0 ? 0.05 : 0.12 + 0.88 * part);
  if (count > 0 && side >= 24)
    svg += fmt::format(R"(<text class="mid{}" x="{:.1f}" y="{:.1f}" font-size="{:.0f}">{}</text>)",
                       part > 0.5 ? " on" : "", x + side / 2, y + side / 2 + 4,
                       std::clamp(side / 3.2, 8.0, 13.0), count);
  return svg + "</g>";
}

std::string table(const std::string& heads, const std::string& rows) {
  return "<table><thead><tr>" + heads + "</tr></thead><tbody>" + rows + "</tbody></table>";
}

std::string pairs_table(const ClassResults& results) {
  std::string rows;
  for (size_t i = 0; i < std::min(kListed, results.confused.size()); ++i) {
    const ClassResults::Pair& pair = results.confused[i];
    const int64_t samples = results.samples[static_cast<size_t>(pair.actual)];
    rows +=
        fmt::format(R"(<tr><td>{} → {}</td><td class="num">{} of {}</td><td class="num">{:.1f}%</td></tr>)",
                    escape(results.name_of(pair.actual)), escape(results.name_of(pair.predicted)), pair.count,
                    samples, 100 * share(pair.count, samples));
  }
  return table("<th>Class → taken for</th><th class=\"num\">Samples</th><th class=\"num\">Share</th>", rows);
}

std::string worst_table(const ClassResults& results) {
  std::vector<size_t> order(results.samples.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::erase_if(order, [&](size_t i) { return results.samples[i] == 0; });
  auto accuracy = [&](size_t i) { return share(results.correct[i], results.samples[i]); };
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return accuracy(a) < accuracy(b); });
  if (order.size() > kListed) order.resize(kListed);
  std::string rows;
  for (size_t i : order)
    rows += fmt::format(R"(<tr><td>{}</td><td class="num">{} of {}</td><td class="num">{:.1f}%</td></tr>)",
                        escape(results.name_of(static_cast<int64_t>(i))), results.correct[i],
                        results.samples[i], 100 * accuracy(i));
  return table("<th>Class</th><th class=\"num\">Recognised</th><th class=\"num\">Accuracy</th>", rows);
}

}  // namespace

std::string confusion_svg(const ClassResults& results) {
  const size_t classes = results.confusion.size();
  const double side = std::min(46.0, (kWidth - kLeft) / static_cast<double>(classes));
  const double right = kLeft + side * static_cast<double>(classes);
  std::string cells, names;
  for (size_t i = 0; i < classes; ++i) {
    const std::string name = escape(shortened(results.name_of(static_cast<int64_t>(i))));
    const double at = side * (static_cast<double>(i) + 0.5);
    names +=
        fmt::format(R"(<text class="end" x="{:.1f}" y="{:.1f}">{}</text>)", kLeft - 8, kTop + at + 4, name);
    names += fmt::format(R"svg(<text transform="translate({:.1f} {:.1f}) rotate(-45)">{}</text>)svg",
                         kLeft + at, kTop - 8, name);
    for (size_t j = 0; j < classes; ++j) cells += cell_svg(results, i, j, side);
  }
  const double width = std::max(right + 70, 320.0);  // room for the last rotated name
  return fmt::format(
      R"(<svg class="chart" viewBox="0 0 {:.0f} {:.0f}" style="max-width:{:.0f}px" role="img" )"
      R"(aria-label="Confusion matrix"><text x="0" y="14">Rows: class. Columns: taken for.</text>{}{}</svg>)",
      width, kTop + side * static_cast<double>(classes) + 8, width, names, cells);
}

std::string class_section(const ClassResults& results) {
  auto card = [](const char* tag, const char* heading, const std::string& content) {
    return fmt::format("<{0} class=\"card\"><h3>{1}</h3>{2}</{0}>\n", tag, heading, content);
  };
  std::string html;
  if (!results.confusion.empty())
    html += card("figure", "Confusion matrix of the test set", confusion_svg(results));
  const bool small = !results.confusion.empty() && results.confusion.size() <= kListed;
  if (!small && !results.confused.empty()) html += card("section", "Most confused", pairs_table(results));
  html += card("section", "Lowest accuracy", worst_table(results));
  return "<h2>Classes</h2>\n<div class=\"grid2\">" + html + "</div>\n";
}

}  // namespace yoke::report
