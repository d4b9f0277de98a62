#include "yoke/report/collab_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>

#include "yoke/base/units.h"
#include "yoke/report/html.h"
#include "yoke/report/svg_chart.h"
#include "yoke/report/table.h"

namespace yoke::report {
namespace {

using Json = nlohmann::json;

constexpr size_t kMostPoints = 500;

struct Column {
  const char* header;
  bool number = false;
};
constexpr Column kColumns[] = {{"peer"},          {"name"},          {"host"},
                               {"role"},          {"state"},         {"samples/s", true},
                               {"samples", true}, {"upload", true},  {"download", true},
                               {"share", true},   {"outlier", true}, {"last dropped"}};

std::vector<std::string> headers() {
  std::vector<std::string> all;
  for (const Column& column : kColumns) all.emplace_back(column.header);
  return all;
}

// It takes part, or may do so at once.
bool is_present(const Json& peer) {
  const std::string state = peer.at("state");
  return state != "gone" && state != "excluded";
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
          is_present(peer) ? fmt::format("{:.1f} %", 100 * peer.at("share").get<double>()) : "",
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

std::string count_of(const Json& status, const char* key) {
  return format_count(status.at(key).get<double>());
}

std::string headline(const Json& status) {
  return fmt::format("step {} of {}, loss {}, batch {} of {} samples, {} samples/s, {}",
                     count_of(status, "epoch"), count_of(status, "steps"), loss_text(status),
                     count_of(status, "accumulated"), count_of(status, "target_batch"),
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
  const auto kind = [](size_t column) { return kColumns[column].number ? "num" : "text"; };
  std::string html = "<table><thead><tr><th>peer</th>";
  for (size_t i = 1; i < std::size(kColumns); ++i)
    html += fmt::format("<th class=\"{}\">{}</th>", kind(i), escape(kColumns[i].header));
  html += "</tr></thead><tbody>";
  for (const Json& peer : status.at("peers")) {
    const std::vector<std::string> row = cells(peer);
    html += "<tr><th scope=\"row\">" + escape(row[0]) + "</th>";
    for (size_t i = 1; i < row.size(); ++i)
      html += fmt::format("<td class=\"{}\">{}</td>", kind(i), escape(row[i]));
    html += "</tr>";
  }
  return html + "</tbody></table>";
}

std::string progress_of_batch(const Json& status) {
  const double full = std::max(1.0, status.at("target_batch").get<double>());
  return fmt::format(
      "<progress aria-label=\"next batch\" max=\"1\" value=\"{:.4f}\"></progress><p>{} of {} samples</p>",
      std::min(1.0, status.at("accumulated").get<double>() / full), count_of(status, "accumulated"),
      count_of(status, "target_batch"));
}

std::string facts(const Json& status) {
  const Json& peers = status.at("peers");
  const std::pair<const char*, std::string> rows[] = {
      {"Steps", count_of(status, "epoch") + " of " + count_of(status, "steps")},
      {"Samples/s, averaging included", format_count(samples_per_s(status))},
      {"Peers present",
       fmt::format("{} of {}", std::count_if(peers.begin(), peers.end(), is_present), peers.size())},
      {"Averaging rounds repeated", count_of(status, "repeated_rounds")},
      {"Running for", format_duration(status.at("seconds").get<double>())}};
  std::string html = "<table><tbody>";
  for (const auto& [name, value] : rows)
    html += fmt::format("<tr><th scope=\"row\">{}</th><td class=\"num\">{}</td></tr>", name, escape(value));
  return html + "</tbody></table>";
}

// Says when the page was written, and whether it is still being written.
std::string reload_script(double seconds) {
  return fmt::format(
      "<script>const written = new Date(document.lastModified);\n"
      "const age = Math.round((Date.now() - written) / 1000);\n"
      "document.getElementById(\"updated\").textContent = \"Updated at \" + written.toLocaleTimeString() +\n"
      "  (age > {:.0f} ? \", \" + age + \" s ago. Is yoke collab watch still running?\" : \".\");\n"
      "setTimeout(() => location.reload(), {:.0f});</script>\n",
      10 + 3 * seconds, 1000 * seconds);
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
  std::string main = html_heading("Collaborative run: " + model, headline(status));
  if (std::string end = ending(status); !end.empty()) main += "<p><strong>" + escape(end) + "</strong></p>";
  main += fmt::format(
      "<div class=\"grid2\"><section class=\"card\"><h3>Loss</h3>{}</section><section class=\"card\">"
      "<h3>Next batch</h3>{}{}</section></div>\n",
      loss_chart(status), progress_of_batch(status), facts(status));
  main += "<h2>Peers</h2><section class=\"card\">" + peer_table(status) + "</section>\n";
  if (!status.at("ended").get<bool>())
    main += "<div class=\"below\"><p id=\"updated\"></p></div>" + reload_script(seconds);
  return html_page("Collaborative run", main);
}

}  // namespace yoke::report
