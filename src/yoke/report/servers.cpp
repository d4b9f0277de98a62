#include "yoke/report/servers.h"

#include <fmt/core.h>

#include <functional>
#include <utility>

#include <nlohmann/json.hpp>

#include "yoke/base/error.h"
#include "yoke/base/file.h"
#include "yoke/base/units.h"
#include "yoke/report/html.h"
#include "yoke/report/svg_chart.h"

namespace yoke::report {
namespace {

constexpr int64_t kLargestCounts = int64_t{16} << 20;
constexpr size_t kServerPoints = 250;  // per curve: means of neighbours, because single updates are noisy

std::optional<nlohmann::json> counts_of(const RunFolder& run) {
  try {
    if (!std::filesystem::exists(run.path / "ps.json")) return std::nullopt;
    return nlohmann::json::parse(read_file(run.path / "ps.json", kLargestCounts));
  } catch (const std::exception&) {
    return std::nullopt;  // truncated: the rest of the report is shown without it
  }
}

std::string card(const std::string& heading, const std::string& inside) {
  return fmt::format("<figure class=\"card\"><h3>{}</h3>{}</figure>\n", escape(heading), inside);
}

template <class X>
std::string losses(const std::vector<metrics::Record>& records, const std::string& heading,
                   const std::string& x_label, bool steps, X x) {
  LineChart chart{.title = heading, .x_label = x_label, .y_label = "loss", .whole_x = steps};
  Series series{.name = "loss"};
  for (const metrics::Record& record : records) series.points.push_back({x(record), record.loss});
  if (series.points.empty()) return "";
  chart.series.push_back(std::move(series));
  return card(heading, to_svg(chart));
}

// Over all workers, if the scheduler has recorded them; otherwise of the first.
std::string loss_charts(const RunFolder& run, const nlohmann::json& counts) {
  std::vector<LossPoint> curve = coarser(loss_curve_of(counts), kServerPoints);
  std::vector<metrics::Record> records = curve.empty() ? run.records : records_of(curve);
  return losses(records, "Loss over time", "seconds", /*steps=*/false,
                [](const metrics::Record& record) { return record.time; }) +
         losses(records, "Loss over updates", "updates", /*steps=*/true,
                [](const metrics::Record& record) { return static_cast<double>(record.step); });
}

std::string staleness_chart(const nlohmann::json& counts) {
  auto histogram_of = counts.at("staleness").at("histogram").get<std::vector<double>>();
  if (histogram_of.empty()) return "";
  StackedBars chart = histogram("Staleness", "updates late", "gradients", histogram_of);
  return card(fmt::format("Staleness: {:.3g} on average, {:.0f}% fresh",
                          counts.at("staleness").at("mean").get<double>(),
                          100 * counts.at("staleness").at("fresh").get<double>()),
              to_svg(chart));
}

constexpr double kLeastSeconds = 1e-9;

double seconds_of(const nlohmann::json& one, const std::string& use) {
  return one.at(use + "_seconds").get<double>();
}

// One bar each, with the share of `seconds` that each use took.
std::string time_chart(const std::string& who, const std::vector<std::string>& uses,
                       const nlohmann::json& list,
                       const std::function<double(const nlohmann::json&)>& seconds) {
  const std::string heading = "Time of each " + who;
  StackedBars chart{.title = heading,
                    .x_label = who,
                    .y_label = "share of the run",
                    .unit = Unit::kPercent,
                    .y_to = 1,
                    .layers = uses};
  double at = 0;
  for (const nlohmann::json& one : list) {
    StackedBar bar{at, at + 0.8, {}, fmt::format("{}", one.at(who).get<int64_t>())};
    for (const std::string& use : uses)
      bar.values.push_back(seconds_of(one, use) / std::max(kLeastSeconds, seconds(one)));
    chart.bars.push_back(std::move(bar));
    ++at;
  }
  return card(heading, to_svg(chart));
}

const std::vector<std::string> kWorkerUses = {"compute", "pull", "push", "idle", "cancelled"};
const std::vector<std::string> kServerUses = {"receive", "apply", "wait"};

double sum_of(const nlohmann::json& one, const std::vector<std::string>& uses) {
  double sum = 0;
  for (const std::string& use : uses) sum += seconds_of(one, use);
  return sum;
}

// A push may overlap waiting for the rule: together they may take longer than the run.
std::string workers_chart(const nlohmann::json& counts) {
  return time_chart("worker", kWorkerUses, counts.at("workers"), [&](const nlohmann::json& worker) {
    return std::max(counts.at("seconds").get<double>(), sum_of(worker, kWorkerUses));
  });
}

double seconds_of_server(const nlohmann::json& server) {
  return sum_of(server, kServerUses);
}

// Empty for runs of versions that did not count it.
std::string server_bars(const nlohmann::json& counts) {
  if (!counts.contains("server_times") || counts.at("server_times").empty()) return "";
  return time_chart("server", kServerUses, counts.at("server_times"), seconds_of_server);
}

std::string servers_table(const nlohmann::json& counts) {
  if (!counts.contains("server_times") || counts.at("server_times").empty()) return "";
  std::string rows;
  for (const nlohmann::json& server : counts.at("server_times")) {
    rows += fmt::format("<tr><td>{}</td>", server.at("server").get<int64_t>());
    for (const std::string& use : kServerUses)
      rows += fmt::format(R"(<td class="num">{:.1f}%</td>)",
                          100 * seconds_of(server, use) / std::max(kLeastSeconds, seconds_of_server(server)));
    for (const char* bytes : {"pushed", "pulled", "table", "replicated"})
      rows += fmt::format(R"(<td class="num">{}</td>)",
                          format_bytes(server.at(std::string(bytes) + "_bytes").get<double>()));
    rows += "</tr>";
  }
  return fmt::format(
      "<section class=\"card\"><h3>Time and bytes per server</h3><div class=\"scroll\"><table><tr><th>server"
      "</th><th>receive</th><th>apply</th><th>wait</th><th>pushed</th><th>pulled</th><th>tables</th><th>"
      "copies</th></tr>{}</table></div><p>Receive: a payload was arriving. Apply: requests were handled. "
      "Wait: "
      "neither. From the first request of the training to the last update. Tables: moved for sparse tables. "
      "Copies: sent to replicas on other servers.</p></section>\n",
      rows);
}

std::string workers_table(const nlohmann::json& counts) {
  std::string rows;
  double seconds = std::max(1e-9, counts.at("seconds").get<double>());
  int number = 0;
  for (const nlohmann::json& worker : counts.at("workers")) {
    auto share = [&](const char* key) { return 100 * worker.at(key).get<double>() / seconds; };
    rows += fmt::format(
        R"(<tr><td>{}{}</td><td class="num">{}</td><td class="num">{:.1f}%</td><td class="num">{:.1f}%</td>)"
        R"(<td class="num">{:.1f}%</td><td class="num">{:.1f}%</td><td class="num">{:.1f}%</td></tr>)",
        number++, worker.at("lost").get<bool>() ? " (lost)" : "", worker.at("gradients").get<int64_t>(),
        share("compute_seconds"), share("pull_seconds"), share("push_seconds"), share("idle_seconds"),
        share("cancelled_seconds"));
  }
  return fmt::format(
      "<section class=\"card\"><h3>Time per "
      "worker</h3><div "
      "class=\"scroll\"><table><tr><th>worker</th><th>gradients</th><th>compute</th><th>pull</th><th>push</"
      "th><th>idle</th><th>cancelled</th></tr>{}</table></div><p>Compute: from having "
      "the parameters to having the gradient, with injected delays (slowdown.law). A push may overlap idle "
      "time; the bars show shares of the sum then.</p></section>\n",
      rows);
}

constexpr std::pair<const char*, const char*> kTableBytes[] = {{"sent", "bytes_sent"},
                                                               {"received", "bytes_received"},
                                                               {"key lists saved", "key_cache_saved"},
                                                               {"fixed point saved", "fixed_point_saved"},
                                                               {"compression saved", "compress_saved"}};
constexpr std::pair<const char*, const char*> kTableRows[] = {{"rows held back", "rows_held_back"},
                                                              {"rows skipped", "rows_skipped"},
                                                              {"rows kept at zero", "rows_kept_zero"}};

std::string table_row(const std::string& who, const nlohmann::json& counts) {
  std::string row = fmt::format("<tr><td>{}</td>", who);
  for (const auto& [title, key] : kTableBytes)
    row += fmt::format(R"(<td class="num">{}</td>)", format_bytes(counts.at(key).get<double>()));
  for (const auto& [title, key] : kTableRows)
    row += fmt::format(R"(<td class="num">{}</td>)", counts.at(key).get<int64_t>());
  return row + "</tr>";
}

// Empty without sparse tables, and for runs of versions that counted one worker.
std::string tables_table(const nlohmann::json& counts) {
  if (!counts.contains("sparse") || !counts.at("sparse").contains("workers")) return "";
  const nlohmann::json& sparse = counts.at("sparse");
  std::string titles, rows = table_row("all", sparse);
  for (const auto& [title, key] : kTableBytes) titles += fmt::format("<th>{}</th>", title);
  for (const auto& [title, key] : kTableRows) titles += fmt::format("<th>{}</th>", title);
  for (const nlohmann::json& worker : sparse.at("workers"))
    rows += table_row(fmt::format("{}", worker.at("worker").get<int64_t>()), worker);
  return fmt::format(
      "<section class=\"card\"><h3>Sparse tables</h3><div class=\"scroll\"><table><tr><th>worker</th>{}</tr>"
      "{}</table></div><p>Bytes of keys and values, and what the filters saved of them. Workers that were "
      "lost have told nothing.</p></section>\n",
      titles, rows);
}

}  // namespace

std::string servers_section(const RunFolder& run) {
  std::optional<nlohmann::json> counts = counts_of(run);
  if (!counts) return "";
  try {
    double rate = counts->at("seconds").get<double>() > 0
                      ? counts->at("updates").get<double>() / counts->at("seconds").get<double>()
                      : 0;
    return fmt::format(
        "<h2>Parameter servers</h2>\n<p>{}, K = {}, {} server{}: {:.4g} updates/s, workers idle {:.1f}%, {} "
        "minibatches "
        "cancelled.</p>\n<div class=\"grid2\">{}{}</div>\n{}",
        escape(counts->at("policy").get<std::string>()), counts->at("k").get<int64_t>(),
        counts->at("servers").get<int64_t>(), counts->at("servers").get<int64_t>() == 1 ? "" : "s", rate,
        100 * counts->at("idle_fraction").get<double>(), counts->at("cancelled").get<int64_t>(),
        loss_charts(run, *counts), staleness_chart(*counts) + workers_chart(*counts) + server_bars(*counts),
        workers_table(*counts) + servers_table(*counts) + tables_table(*counts));
  } catch (const nlohmann::json::exception&) {
    return "";
  }
}

}  // namespace yoke::report
