#include "yoke/report/collab_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "yoke/base/units.h"
#include "yoke/report/html.h"
#include "yoke/report/svg_chart.h"
#include "yoke/report/table.h"

namespace yoke::report {
namespace {

using Json = nlohmann::json;

constexpr size_t kMostPoints = 500;

std::vector<std::string> headers() {
  return {"peer",    "name",   "host",     "role",  "state",   "samples/s",
          "samples", "upload", "download", "share", "outlier", "last dropped"};
}

std::string rate(double link) {
  return link > 0 ? fmt::format("{}/s", format_bytes(link)) : "unknown";
}

std::vector<std::string> cells(const Json& peer) {
  const double outlier = peer.at("outlier");
  return {fmt::format("{}", peer.at("id").get<int>()),
          peer.at("name"),
          peer.at("host"),
          peer.at("role"),
          peer.at("state"),
          format_count(peer.at("samples_per_s").get<double>()),
          format_count(peer.at("samples").get<double>()),
          rate(peer.at("upload")),
          rate(peer.at("download")),
          fmt::format("{:.1f} %", 100 * peer.at("share").get<double>()),
          outlier > 0 ? fmt::format("{:.1f}", outlier) : "",
          peer.value("why_dropped", "")};
}

// Of finished steps, averaging included.
double samples_per_s(const Json& status) {
  const double seconds = status.at("seconds");
  const auto steps = static_cast<double>(status.at("losses").size());
  return seconds > 0 ? steps * status.at("target_batch").get<double>() / seconds : 0;
}

std::string loss_text(const Json& status) {
  return status.at("loss").is_number() ? fmt::format("{:.4f}", status.at("loss").get<double>()) : "none yet";
}

std::string headline(const Json& status) {
  return fmt::format("step {} of {}, loss {}, batch {} of {} samples, {} samples/s, {}",
                     status.at("epoch").get<int64_t>(), status.at("steps").get<int64_t>(), loss_text(status),
                     status.at("accumulated").get<int64_t>(), status.at("target_batch").get<int64_t>(),
                     format_count(samples_per_s(status)),
                     format_duration(status.at("seconds").get<double>()));
}

std::string ending(const Json& status) {
  if (!status.at("ended").get<bool>()) return "";
  const std::string failure = status.at("failure");
  return failure.empty() ? "the run is over" : "the run ended: " + failure;
}

std::string loss_chart(const Json& status) {
  Series series{.name = "loss"};
  const Json& losses = status.at("losses");
  const size_t every = std::max<size_t>(1, losses.size() / kMostPoints);
  for (size_t i = 0; i < losses.size(); i += every)
    series.points.push_back(
        {static_cast<double>(i + 1), losses[i].is_number() ? losses[i].get<double>() : NAN});
  return to_svg(
      LineChart{.title = "Loss", .x_label = "step", .y_label = "loss", .series = {std::move(series)}});
}

std::string peer_table(const Json& status) {
  std::string html = "<table><thead><tr>";
  for (const std::string& header : headers()) html += "<th>" + escape(header) + "</th>";
  html += "</tr></thead><tbody>";
  for (const Json& peer : status.at("peers")) {
    const std::vector<std::string> row = cells(peer);
    html += "<tr><th scope=\"row\">" + escape(row[0]) + "</th>";
    for (size_t i = 1; i < row.size(); ++i) html += "<td class=\"num\">" + escape(row[i]) + "</td>";
    html += "</tr>";
  }
  return html + "</tbody></table>";
}

}  // namespace

std::string collab_text(const Json& status, int width) {
  Table table(headers());
  for (const Json& peer : status.at("peers")) table.add(cells(peer));
  std::string text = headline(status) + "\n" + table.to_text(width);
  if (std::string end = ending(status); !end.empty()) text += end + "\n";
  return text;
}

std::string collab_page(const Json& status, double seconds) {
  const Json& run = status.at("run");
  std::string model = run.value("model.name", "");
  std::erase(model, '"');
  const double full = std::max(1.0, status.at("target_batch").get<double>());
  std::string main = html_heading("Collaborative run: " + model, headline(status));
  if (std::string end = ending(status); !end.empty()) main += "<p><strong>" + escape(end) + "</strong></p>";
  main += fmt::format(
      "<div class=\"grid2\"><section class=\"card\">{}</section><section class=\"card\"><h3>Next batch</h3>"
      "<progress aria-label=\"next batch\" style=\"width: 100%\" max=\"1\" value=\"{:.4f}\"></progress>"
      "<p>{} of {} samples</p></section></div>\n",
      loss_chart(status), std::min(1.0, status.at("accumulated").get<double>() / full),
      format_count(status.at("accumulated").get<double>()),
      format_count(status.at("target_batch").get<double>()));
  main += "<h2>Peers</h2><section class=\"card\">" + peer_table(status) + "</section>\n";
  if (!status.at("ended").get<bool>())
    main += fmt::format("<script>setTimeout(() => location.reload(), {:.0f});</script>", 1000 * seconds);
  return html_page("Collaborative run", main);
}

}  // namespace yoke::report
