#include "yoke/report/lab_page.h"

#include <fmt/core.h>

#include "yoke/report/html.h"
#include "yoke/report/style.h"

namespace yoke::report {
namespace {

std::string paragraphs(const char* classes, const std::vector<std::string>& texts) {
  std::string html;
  for (const std::string& text : texts) html += fmt::format("<p>{}</p>", escape(text));
  return html.empty() ? "" : fmt::format("<div class=\"{}\">{}</div>\n", classes, html);
}

}  // namespace

void LabPage::close_grid() {
  if (in_grid_) body_ += "</div>\n";
  in_grid_ = false;
}

void LabPage::section(const std::string& heading) {
  close_grid();
  body_ += fmt::format("<h2>{}</h2>\n", escape(heading));
}

void LabPage::paragraph(const std::string& text) {
  close_grid();
  body_ += fmt::format("<p>{}</p>\n", escape(text));
}

void LabPage::add(LabFigure figure) {
  if (figure.wide) close_grid();
  if (!figure.wide && !in_grid_) {
    body_ += "<div class=\"grid2\">\n";
    in_grid_ = true;
  }
  body_ += fmt::format("<figure class=\"card{}\">", figure.wide ? " wide" : "");
  if (!figure.heading.empty()) body_ += fmt::format("<h3>{}</h3>", escape(figure.heading));
  body_ += figure.svg;
  if (!figure.caption.empty())
    body_ += fmt::format("<figcaption class=\"about\">{}</figcaption>", escape(figure.caption));
  body_ += "</figure>\n";
  figures_.push_back(std::move(figure));
}

void LabPage::add(const LabTable& table) {
  close_grid();
  std::string rows = "<tr>";
  for (const std::string& cell : table.head) rows += fmt::format("<th>{}</th>", escape(cell));
  rows += "</tr>";
  for (const std::vector<std::string>& row : table.rows) {
    rows += "<tr>";
    for (size_t i = 0; i < row.size(); ++i)
      rows += i == 0 ? fmt::format("<th scope=\"row\">{}</th>", escape(row[i]))
                     : fmt::format("<td class=\"num\">{}</td>", escape(row[i]));
    rows += "</tr>";
  }
  body_ += fmt::format("<section class=\"card\"><div class=\"scroll\"><table>{}</table></div>{}</section>\n",
                       rows, paragraphs("below", table.notes));
}

std::string LabPage::html(const std::vector<std::string>& failed) const {
  std::string main =
      fmt::format("<header><p class=\"kicker\">{}</p><h1>{}</h1><p class=\"about\">{}</p></header>\n",
                  escape(command), escape(title), escape(question));
  main += paragraphs("notes", failed);
  if (!about.empty()) main += fmt::format("<p class=\"about\">{}</p>\n", escape(about));
  if (!result.empty()) main += fmt::format("<p class=\"result\">{}</p>\n", escape(result));
  return html_page(title, main + body_ + (in_grid_ ? "</div>\n" : ""));
}

std::string standalone_svg(const std::string& svg) {
  const size_t title = svg.find("<title>");
  if (svg.find("xmlns=") != std::string::npos || title == std::string::npos) return svg;
  std::string out = svg;
  out.insert(title, fmt::format("<style>{}svg {{ background: var(--card); }}</style>", kChartStyle));
  return out.insert(4, " xmlns=\"http://www.w3.org/2000/svg\"");
}

}  // namespace yoke::report
