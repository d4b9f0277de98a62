#include "yoke/report/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "yoke/base/error.h"
#include "yoke/base/file.h"
#include "yoke/metrics/test_folder.h"
#include "yoke/report/runs_together.h"

namespace yoke::report {
namespace {

using metrics::fresh_folder;
using metrics::Record;
using metrics::Summary;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kConfig = R"([model]
name = "lenet"  # built-in
[train]
lr = 0.05
note = "a # in quotes"
)";

void put(const std::filesystem::path& path, const std::string& text) {
  std::ofstream(path) << text;
}

std::string lines(int count, bool everything) {
  std::string text;
  for (int i = 1; i <= count; ++i) {
    Record record{.step = i * 10, .loss = 2.0 / i, .lr = 0.1, .samples = i * 640, .samples_per_s = 1000};
    if (everything) {
      record.grad_norm = 1;
      record.loss_scale = 65536;
      record.accuracy = 0.5;
      record.eval_loss = 1;
      record.memory_bytes = 1000000;
      record.split = metrics::TimeSplit{0.001, 0.002, 0.004, 0.001, 0.001, 0.001};
    }
    text += to_json(record).dump() + "\n";
  }
  return text;
}

std::string summary() {
  Summary summary{.model = "lenet",
                  .data = "fashion_mnist",
                  .precision = "bf16",
                  .device = "cpu",
                  .steps = 1000,
                  .final_loss = 0.25,
                  .accuracy = 0.9,
                  .parameters = 61706,
                  .peak_memory_bytes = {5, 2000000},
                  .command = "yoke train a.toml"};
  return to_json(summary).dump();
}

std::string report_of(const std::filesystem::path& folder) {
  write_report(folder, folder / "report.html");
  return read_file(folder / "report.html");
}

TEST(Report, ShowsAWholeRun) {
  auto folder = fresh_folder();
  put(folder / "config.toml", kConfig);
  put(folder / "metrics.jsonl", lines(100, true));
  put(folder / "summary.json", summary());
  std::string html = report_of(folder);
  for (const char* text :
       {"lenet on fashion_mnist", "Finished", "90.00%", "61,706", "2 MB", "bf16", "<h3>Loss</h3>",
        "<h3>Accuracy</h3>", "<h3>Learning rate</h3>", "<h3>Throughput</h3>", "<h3>Gradient norm</h3>",
        "<h3>Loss scale</h3>", "<h3>Memory</h3>", "Time per step", "40.0%", "Configuration",
        "yoke train a.toml", "a # in quotes"}) {
    EXPECT_THAT(html, HasSubstr(text));
  }
  EXPECT_THAT(html, Not(HasSubstr("class=\"notes\"")));
}

TEST(Report, NeedsNoScriptAndNoOtherFile) {
  auto folder = fresh_folder();
  put(folder / "metrics.jsonl", lines(100, true));
  std::string html = report_of(folder);
  for (const char* text : {"<script", "http://", "https://", "src=", "url(", "@import"}) {
    EXPECT_THAT(html, Not(HasSubstr(text)));
  }
}

TEST(Report, LeavesOutWhatTheRecordsDoNotHave) {
  auto folder = fresh_folder();
  put(folder / "metrics.jsonl", lines(5, false));
  std::string html = report_of(folder);
  EXPECT_THAT(html, AllOf(HasSubstr("<h3>Loss</h3>"), Not(HasSubstr("<h3>Accuracy</h3>")),
                          Not(HasSubstr("Time per step")), Not(HasSubstr("<h2>Configuration"))));
}

TEST(Report, ThroughputEndsWithTheLastWholeRecord) {
  auto folder = fresh_folder();
  Record last{.step = 100, .loss = 1, .lr = 0.1, .samples = 5 * 640 + 3, .samples_per_s = 7};
  put(folder / "metrics.jsonl", lines(5, false) + to_json(last).dump() + "\n");
  std::string html = report_of(folder);
  EXPECT_THAT(html, HasSubstr("samples per second: 1,000"));
  EXPECT_THAT(html, Not(HasSubstr("samples per second: 7")));
}

TEST(Report, InjectedDelaysAreNamed) {
  auto folder = fresh_folder();
  put(folder / "metrics.jsonl", lines(5, true));
  EXPECT_THAT(report_of(folder), Not(HasSubstr("injected delay")));
  put(folder / "config.toml", std::string(kConfig) + "[slowdown]\nlaw = \"exp:5ms\"\n");
  EXPECT_THAT(report_of(folder), HasSubstr("other, injected delay"));
}

TEST(Report, ShowsHowWorkersAndServersSpentTheirTime) {
  auto folder = fresh_folder();
  put(folder / "metrics.jsonl", lines(5, true));
  nlohmann::json counts = {
      {"policy", "async"},    {"k", 1},
      {"servers", 2},         {"seconds", 10.0},
      {"updates", 50},        {"cancelled", 0},
      {"idle_fraction", 0.1}, {"staleness", {{"mean", 0}, {"fresh", 1}, {"histogram", {50}}}}};
  counts["workers"] = {{{"worker", 0},
                        {"gradients", 50},
                        {"lost", false},
                        {"compute_seconds", 6.0},
                        {"pull_seconds", 1.0},
                        {"push_seconds", 2.0},
                        {"idle_seconds", 1.0},
                        {"cancelled_seconds", 0.0}}};
  counts["workers"].push_back(counts["workers"][0]);
  counts["workers"][1]["push_seconds"] = 12.0;  // overlaps idle time: 20 s in a run of 10 s
  put(folder / "ps.json", counts.dump());
  EXPECT_THAT(report_of(folder),
              AllOf(HasSubstr("Time of each worker"), Not(HasSubstr("Time of each server"))));
  EXPECT_THAT(report_of(folder), AllOf(HasSubstr("compute: 60.00%"), HasSubstr("push: 60.00%")));
  for (int server : {0, 2})
    counts["server_times"].push_back({{"server", server},
                                      {"receive_seconds", 1.0},
                                      {"apply_seconds", 2.5},
                                      {"wait_seconds", 6.5},
                                      {"pushed_bytes", 2'000'000},
                                      {"pulled_bytes", 0},
                                      {"table_bytes", 0},
                                      {"replicated_bytes", 0}});
  put(folder / "ps.json", counts.dump());
  EXPECT_THAT(report_of(folder),
              AllOf(HasSubstr("Time of each server"), HasSubstr("<td class=\"num\">65.0%</td>"),
                    HasSubstr("<td>2</td>"), HasSubstr("2 MB")));
  EXPECT_THAT(report_of(folder), Not(HasSubstr("Sparse tables")));
  counts["sparse"] = {{"rows_held_back", 0}, {"rows_skipped", 42}, {"rows_kept_zero", 0}};
  for (const char* key :
       {"bytes_sent", "bytes_received", "key_cache_saved", "fixed_point_saved", "compress_saved"})
    counts["sparse"][key] = 1000;
  nlohmann::json own = counts["sparse"];
  own["worker"] = 0;
  counts["sparse"]["workers"] = nlohmann::json::array({own});
  put(folder / "ps.json", counts.dump());
  EXPECT_THAT(report_of(folder), AllOf(HasSubstr("Sparse tables"), HasSubstr("rows skipped"),
                                       HasSubstr("<td class=\"num\">42</td>")));
}

TEST(RunsTogether, HaveATargetThatAllReachAndTheTimeToIt) {
  auto folder = fresh_folder(), fast = folder / "fast", slow = folder / "slow", empty = folder / "empty";
  for (const auto& one : {fast, slow, empty}) std::filesystem::create_directories(one);
  put(fast / "metrics.jsonl", lines(100, false));
  put(slow / "metrics.jsonl", lines(10, false));
  std::vector<RunCurve> runs = {curve_of("fast", fast), curve_of("<slow>", slow)};
  const double target = common_target(runs);
  EXPECT_NEAR(target, 0.2, 0.01);  // of ten records, 2/10
  find_target(runs, target);
  EXPECT_EQ(runs[0].steps_to_target, 100);
  EXPECT_EQ(runs[1].steps_to_target, 100);
  const std::string html = runs_page(runs, target).html({});
  EXPECT_THAT(html,
              AllOf(HasSubstr("Against time"), HasSubstr("Against samples"), HasSubstr("&lt;slow&gt;")));
  find_target(runs, 0.05);
  EXPECT_EQ(runs[1].steps_to_target, std::nullopt);
  put(empty / "config.toml", kConfig);
  EXPECT_THROW(curve_of("empty", empty), ConfigError);
}

TEST(RunsTogether, OnlyARunWithoutSamplesOrBytesIsLeftOut) {
  auto folder = fresh_folder(), plain = folder / "plain", sending = folder / "sending",
       served = folder / "served";
  for (const auto& one : {plain, sending, served}) {
    std::filesystem::create_directories(one);
    if (one != served) put(one / "metrics.jsonl", lines(50, false));
  }
  put(served / "config.toml", "[parallel]\nsync = \"ps\"\n");
  put(served / "ps.json",
      R"({"loss_curve": {"version": [100, 500], "seconds": [1, 2], "loss": [1.0, 0.02], "gradients": [9, 9]}})");
  std::vector<RunCurve> runs = {curve_of("plain", plain), curve_of("sending", sending),
                                curve_of("served", served)};
  runs[1].bytes_per_step = 1000;
  find_target(runs, 0.2);
  EXPECT_EQ(runs[0].samples_to_target, 6400);
  EXPECT_EQ(runs[0].bytes_to_target, std::nullopt);
  EXPECT_EQ(runs[1].bytes_to_target, 100'000);
  EXPECT_EQ(runs[2].steps_to_target, 500);
  EXPECT_EQ(runs[2].samples_to_target, std::nullopt);
  const LabPage page = runs_page(runs, 0.2);
  ASSERT_EQ(page.figures().size(), 4u);
  EXPECT_THAT(page.figures()[2].svg,
              AllOf(HasSubstr("plain"), HasSubstr("sending"), Not(HasSubstr("served"))));
  EXPECT_THAT(page.figures()[2].caption, HasSubstr("Not drawn: served."));
  EXPECT_THAT(page.figures()[3].svg, AllOf(HasSubstr("sending"), Not(HasSubstr("plain"))));
  EXPECT_THAT(page.figures()[3].caption, HasSubstr("Not drawn: plain, served."));
  put(served / "metrics.jsonl", lines(50, false));
  runs[2] = curve_of("served", served);
  find_target(runs, 0.2);
  EXPECT_EQ(runs[2].samples_to_target, 32'000);  // of its record of that step
  EXPECT_THAT(runs_page(runs, 0.2).figures()[2].svg, HasSubstr("served"));
  runs.erase(runs.begin() + 1);
  EXPECT_THAT(runs_page(runs, 0.2).html({}), HasSubstr("busiest rank: Not drawn: plain, served."));
}

TEST(Report, SaysWhatIsMissingOrTorn) {
  auto folder = fresh_folder();
  put(folder / "metrics.jsonl", "garbage\n" + lines(5, false) + R"({"step":6)");
  put(folder / "summary.json", summary().substr(0, 50));
  std::string html = report_of(folder);
  EXPECT_THAT(html, HasSubstr("config.toml is missing"));
  EXPECT_THAT(html, HasSubstr("last line of metrics.jsonl is truncated"));
  EXPECT_THAT(html, HasSubstr("1 damaged line was left out, first line 1"));
  EXPECT_THAT(html, HasSubstr("summary.json cannot be read"));
  EXPECT_THAT(html, HasSubstr("Not finished"));
}

TEST(Report, StandsOnEachFileAlone) {
  for (const char* file : {"config.toml", "metrics.jsonl", "summary.json"}) {
    auto folder = fresh_folder();
    put(folder / file, file == std::string("config.toml")     ? kConfig
                       : file == std::string("metrics.jsonl") ? ""
                                                              : summary().c_str());
    EXPECT_THAT(report_of(folder), HasSubstr("</html>")) << file;
  }
}

TEST(Report, TellsWhenTheLossIsNotFinite) {
  auto folder = fresh_folder();
  put(folder / "metrics.jsonl",
      lines(3, true) + R"({"step":40,"time":1,"loss":null,"lr":0.1,"samples":1,"samples_per_s":null})" +
          "\n");
  std::string html = report_of(folder);
  EXPECT_THAT(html, HasSubstr("not a finite number in 1 of 4 records, first at step 40"));
  EXPECT_THAT(html, Not(HasSubstr("nan")));
}

TEST(Report, EscapesEverythingThatCameFromOutside) {
  auto folder = fresh_folder() / "<b>run&";
  std::filesystem::create_directories(folder);
  put(folder / "config.toml", "[<i>x]\n<u>key = \"<script>alert(1)</script>\"\n");
  Summary hostile{.model = "<img onerror=x>", .started = "<s>", .command = "yoke && <evil>"};
  put(folder / "summary.json", to_json(hostile).dump());
  std::string html = report_of(folder);
  for (const char* text : {"<script", "<img", "<b>run", "<i>", "<u>", "<s>", "<evil>"}) {
    EXPECT_THAT(html, Not(HasSubstr(text)));
  }
}

TEST(Report, RefusesAFolderWithoutARun) {
  auto folder = fresh_folder();
  for (const auto& path : {folder, folder / "missing"}) {
    try {
      write_report(path, folder / "report.html");
      FAIL() << "wrote a report of nothing";
    } catch (const ConfigError& error) {
      EXPECT_THAT(error.what(), HasSubstr(path.string()));
    }
  }
}

TEST(Report, NamesAnOutputItCannotWrite) {
  auto folder = fresh_folder();
  put(folder / "config.toml", kConfig);
  EXPECT_THROW(write_report(folder, folder / "no such folder" / "report.html"), ConfigError);
}

TEST(ReadConfig, ShowsWhatATornFileHas) {
  auto sections =
      read_config("[model]\nname = \"lenet\"\n\n[empty]\n[train]\nlr = 0.05 # x\nsizes = [1, 2]\nseed");
  ASSERT_EQ(sections.size(), 2u);
  EXPECT_EQ(sections[1].name, "train");
  EXPECT_EQ(sections[1].values[1].second, "[1, 2]");
  EXPECT_EQ(sections[1].values.size(), 2u);
}

}  // namespace
}  // namespace yoke::report
