#include "cli/lab.h"

#include <fmt/core.h>
#include <signal.h>

#include <algorithm>

#include "cli/output.h"
#include "yoke/base/error.h"
#include "yoke/base/file.h"
#include "yoke/base/log.h"
#include "yoke/base/text.h"
#include "yoke/base/units.h"

namespace yoke::cli {
namespace {

namespace fs = std::filesystem;

constexpr int kSignalled = 128;  // exit codes from here: a signal
volatile sig_atomic_t got_signal = 0;

// The first signal ends the lab after the current part, the second one at once.
class StopBetweenParts {
 public:
  StopBetweenParts() {
    got_signal = 0;
    struct sigaction action {};
    action.sa_handler = [](int signal) { got_signal = signal; };
    action.sa_flags = static_cast<int>(SA_RESETHAND | SA_RESTART);
    for (int signal : {SIGINT, SIGTERM}) ::sigaction(signal, &action, nullptr);
  }
  ~StopBetweenParts() {
    for (int signal : {SIGINT, SIGTERM}) ::signal(signal, SIG_DFL);
  }
  StopBetweenParts(const StopBetweenParts&) = delete;
  StopBetweenParts& operator=(const StopBetweenParts&) = delete;
};

std::string csv_cell(const nlohmann::json& value) {
  if (!value.is_string()) return value.dump();
  std::string text = value.get<std::string>();
  if (text.find_first_of(",\"\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (char letter : text) quoted += letter == '"' ? "\"\"" : std::string(1, letter);
  return quoted + "\"";
}

const LabRow& lab_named(const std::string& command) {
  for (const LabRow& row : labs())
    if (command == "lab " + row.name) return row;
  throw ConfigError("`yoke {}`: there is no such lab. `yoke lab` lists them.", command);
}

void write_files(const Lab& lab, nlohmann::json& document) {
  const fs::path page = lab.out / "report.html";
  document["report"] = page.string();
  document["quick"] = lab.quick;
  document["seconds"] = lab.seconds();
  if (!lab.failed().empty()) document["failed"] = lab.failed();
  for (const report::LabFigure& figure : lab.page.figures())
    write_file_atomically(lab.out / (figure.name + ".svg"), report::standalone_svg(figure.svg));
  write_file_atomically(lab.out / "results.json", document.dump(2) + "\n");
  write_file_atomically(lab.out / "results.csv", lab.csv.empty() ? csv_of(document["results"]) : lab.csv);
  write_file_atomically(page, lab.page.html(lab.failed()));
}

}  // namespace

Lab::Lab(const CommandLine& command, LabValues options, fs::path folder)
    : line(command), values(std::move(options)), out(std::move(folder)), quick(command.lab_quick) {
  page.command = command.typed;
}

bool Lab::was_given(const std::string& flag) const {
  return std::find(line.given.begin(), line.given.end(), flag) != line.given.end();
}

bool Lab::interrupted() const {
  return got_signal != 0 || code_ >= kSignalled;
}

void Lab::announce(const std::string& name) const {
  std::string left;
  if (begun_ > 1 && expected_ >= begun_) {
    const double each = watch_.seconds() / static_cast<double>(begun_ - 1);
    left = ", about " + format_duration(each * static_cast<double>(expected_ - begun_ + 1)) + " left";
  }
  const std::string of = expected_ > 0 ? fmt::format(" {} of {}", begun_, expected_) : "";
  log::info("{}{}: {}{}", line.command, of, name, left);
}

void Lab::fail(const std::string& name, const std::string& reason, int code) {
  failed_.push_back(name + ": " + reason);
  log::error("{}: {}", name, reason);
  if (code_ == 0 || code >= kSignalled) code_ = code;
}

bool Lab::part(const std::string& name, const std::function<void()>& body) {
  ++begun_;
  if (interrupted()) {
    fail(name, "not run: interrupted", got_signal != 0 ? kSignalled + got_signal : code_);
    return false;
  }
  announce(name);
  try {
    body();
  } catch (const Error& error) {
    if (begun_ == 1 && error.code() == ExitCode::kUsage) throw;
    const bool stopped = got_signal != 0 || static_cast<int>(error.code()) >= kSignalled;
    fail(name, stopped ? std::string("interrupted") : error.what(),
         got_signal != 0 ? kSignalled + got_signal : static_cast<int>(error.code()));
    return false;
  } catch (const std::exception& error) {
    fail(name, error.what(), static_cast<int>(ExitCode::kInternal));
    return false;
  }
  return true;
}

void Lab::show(const report::LabTable& table, const std::string& below) {
  page.add(table);
  print(table, below);
}

void Lab::print(const report::LabTable& table, const std::string& below) {
  if (table.rows.empty()) return;
  report::Table plain(table.head);
  for (const std::vector<std::string>& row : table.rows) plain.add(row);
  text += plain.to_text(table_columns()) + below + (below.empty() ? "" : "\n");
}

std::string csv_of(const nlohmann::json& rows) {
  std::vector<std::string> keys;
  for (const auto& row : rows)
    for (const auto& [key, value] : row.items())
      if (!value.is_structured() && std::find(keys.begin(), keys.end(), key) == keys.end())
        keys.push_back(key);
  std::string text = join(keys, ",") + "\n";
  for (const auto& row : rows) {
    std::vector<std::string> cells;
    for (const std::string& key : keys)
      cells.push_back(row.contains(key) && !row[key].is_structured() ? csv_cell(row[key]) : "");
    text += join(cells, ",") + "\n";
  }
  return text;
}

int list_labs(const CommandLine& line) {
  if (line.json) {
    nlohmann::json list = nlohmann::json::array();
    for (const LabRow& row : labs())
      list.push_back(
          {{"name", row.name}, {"question", row.question}, {"time", row.time}, {"example", row.example}});
    print_json({{"labs", list}});
    return 0;
  }
  const int width = table_columns();
  for (const LabRow& row : labs()) {
    std::string margin = fmt::format("{:11}  {:23}  ", row.name, row.time);
    const int room = width - static_cast<int>(margin.size());
    for (const std::string& part :
         wrap(row.question, width == 0 ? row.question.size() : static_cast<size_t>(std::max(20, room)))) {
      fmt::print("{}{}\n", margin, part);
      margin.assign(margin.size(), ' ');
    }
  }
  fmt::print(
      "\nyoke lab NAME [options] -o DIR writes report.html, results.json, results.csv and the figures.\n"
      "--quick is a tiny setting of a few seconds; yoke lab NAME --help shows the options.\n");
  return 0;
}

int run_lab(const CommandLine& line) {
  const LabRow& row = lab_named(line.command);
  Lab lab(line, LabValues(row.options, line.lab_values, line.lab_quick),
          line.lab_output.empty() ? fs::path("runs/lab_" + row.name) : fs::path(line.lab_output));
  lab.page.question = row.question;
  std::error_code problem;
  fs::create_directories(lab.out, problem);  // before the parts take their time
  if (problem) throw ConfigError("--output {}: {}.", lab.out.string(), problem.message());
  StopBetweenParts stop;
  log::info("lab {}: {}", row.name,
            line.lab_quick ? std::string("the tiny setting, some seconds")
                           : "with its defaults on two cores about " + row.time);
  row.run(lab);
  write_files(lab, lab.document);
  if (line.json)
    print_json(lab.document);
  else
    fmt::print("{}report: {}\n", lab.text, (lab.out / "report.html").string());
  for (const std::string& part : lab.failed()) log::warn("missing: {}", part);
  return lab.exit_code();
}

}  // namespace yoke::cli
