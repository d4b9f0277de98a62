#include "yoke/report/report.h"

#include <fmt/core.h>

#include <algorithm>
#include <numeric>

#include "yoke/base/file.h"
#include "yoke/base/units.h"
#include "yoke/report/charts.h"
#include "yoke/report/class_section.h"
#include "yoke/report/facts.h"
#include "yoke/report/html.h"
#include "yoke/report/partition_section.h"
#include "yoke/report/servers.h"
#include "yoke/report/ticks.h"

namespace yoke::report {
namespace {

// "2026-02-28T17:03:12Z" as "2026-02-28 17:03 UTC".
std::string short_time(const std::string& utc) {
  if (utc.size() != 20 || utc[10] != 'T' || utc.back() != 'Z') return utc;
  return utc.substr(0, 10) + " " + utc.substr(11, 5) + " UTC";
}

std::string header(const RunFolder& run) {
  std::string about = run.summary ? R"(<b class="done">Finished</b>)" : R"(<b class="open">Not finished</b>)";
  auto add = [&about](const std::string& text) { about += text.empty() ? "" : " · " + escape(text); };
  if (run.summary) {
    const metrics::Summary& s = *run.summary;
    add(short_time(s.started));
    add(s.device_name.empty() ? s.device : s.device_name);
    add(s.precision);
    add(s.optimizer);
  }
  return fmt::format(
      "<header><p class=\"kicker\">Training run {}</p><h1>{}</h1><p class=\"about\">{}</p></header>\n",
      escape(run.path.string()), escape(name_of(run)), about);
}

std::string notes(const RunFolder& run) {
  if (run.notes.empty()) return "";
  std::string html = "<section class=\"notes\" aria-label=\"Notes\">";
  for (const std::string& note : run.notes) html += "<p>" + escape(note) + "</p>";
  return html + "</section>\n";
}

std::string facts(const RunFolder& run) {
  std::string html;
  for (const Fact& fact : facts_of(run)) {
    html += fmt::format(R"(<div><dt>{}</dt><dd class="value">{}</dd><dd class="detail">{}</dd></div>)",
                        escape(fact.label), escape(fact.value), escape(fact.detail));
  }
  return html.empty() ? "" : "<dl class=\"facts\">" + html + "</dl>\n";
}

std::string curves(const RunFolder& run) {
  std::string html;
  std::vector<Figure> figures = figures_of(run.records, with_curve(run.records, run.server_losses));
  if (run.summary)
    if (auto scaling = scaling_of(*run.summary)) figures.insert(figures.begin(), std::move(*scaling));
  for (const Figure& figure : figures) {
    html +=
        fmt::format("<figure class=\"card\"><h3>{}</h3>{}</figure>\n", escape(figure.heading), figure.svg);
  }
  return html.empty() ? "" : "<h2>Curves</h2>\n<div class=\"grid2\">" + html + "</div>\n";
}

// Injected delays count as "other": a page must not call them computation in one place only.
std::string phase_name(const RunFolder& run, size_t phase) {
  const std::string law = config_value(run, "slowdown", "law");
  const bool delayed = !law.empty() && law != "none";
  return std::string(kPhases[phase]) + (delayed && phase + 1 == kPhases.size() ? ", injected delay" : "");
}

std::string share_bar(const RunFolder& run, const TimeShares& shares, double total) {
  std::string bar;
  std::string rows;
  for (size_t i = 0; i < kPhases.size(); ++i) {
    double share = shares.seconds[i] / total;
    if (share > 0) bar += fmt::format(R"(<span class="bar c{}" style="flex:{:.4f}"></span>)", i + 1, share);
    rows +=
        fmt::format(R"(<tr><td><span class="swatch bar c{}"></span>{}</td><td class="num">{}</td>)"
                    R"(<td class="num">{:.1f}%</td></tr>)",
                    i + 1, phase_name(run, i), value_text(shares.seconds[i], Unit::kSeconds), share * 100);
  }
  return fmt::format("<div class=\"share\" aria-hidden=\"true\">{}</div><table>{}</table>", bar, rows);
}

std::string time_split(const RunFolder& run) {
  const TimeShares shares = time_shares(run.records);
  double total = std::accumulate(shares.seconds.begin(), shares.seconds.end(), 0.0);
  if (!(total > 0)) return "";
  return fmt::format(
      "<h2>Time per step</h2>\n"
      "<div class=\"grid2 t1\"><section class=\"card\"><h3>Average step, {}</h3>{}</section><figure "
      "class=\"card\"><h3>Over the run</h3>{}</figure></div>\n",
      escape(value_text(total, Unit::kSeconds)), share_bar(run, shares, total), shares.svg);
}

std::string configuration(const RunFolder& run) {
  if (run.config.empty()) return "";
  std::string html = "<h2>Configuration</h2>\n<div class=\"config\">";
  for (const ConfigSection& section : run.config) {
    html += fmt::format("<section class=\"card\"><h3>{}</h3><table>", escape(section.name));
    for (const auto& [key, value] : section.values) {
      html += fmt::format("<tr><th scope=\"row\">{}</th><td>{}</td></tr>", escape(key), escape(value));
    }
    html += "</table></section>\n";
  }
  return html + "</div>\n";
}

std::string reproduce(const RunFolder& run) {
  std::string html =
      "<h2>Reproduce</h2>\n"
      "<section class=\"card\">";
  if (run.summary && !run.summary->command.empty()) {
    html += fmt::format("<p>The command</p><pre>{}</pre>", escape(run.summary->command));
  }
  if (!run.config.empty()) {
    html += fmt::format(
        "<p>With the saved configuration, in a new folder</p><pre>yoke train {}/config.toml --out.dir "
        "runs/again</pre>",
        escape(run.path.string()));
  }
  html += fmt::format("<p>The same curves in TensorBoard</p><pre>tensorboard --logdir {}</pre>",
                      escape(run.path.string()));
  if (run.summary && !run.summary->parameter_hash.empty()) {
    html += fmt::format("<p>An identical run ends with the parameter hash <code>{}</code>.</p>",
                        escape(run.summary->parameter_hash));
  }
  return html + "</section>\n";
}

}  // namespace

std::string to_html(const RunFolder& run) {
  return html_page(
      name_of(run),
      header(run) + notes(run) + facts(run) + curves(run) +
          (run.summary && run.summary->classes ? class_section(*run.summary->classes) : "") +
          servers_section(run) + time_split(run) + (run.pipeline ? pipeline_section(*run.pipeline) : "") +
          (run.partition ? partition_section(*run.partition) : "") + configuration(run) + reproduce(run),
      fmt::format("Written by Yoke from {} records.", format_count(static_cast<double>(run.records.size()))));
}

void write_report(const std::filesystem::path& run_dir, const std::filesystem::path& output) {
  write_file_atomically(output, to_html(read_run(run_dir)));
}

}  // namespace yoke::report
