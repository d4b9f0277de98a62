// The frame of all labs: options, progress, files, and what happens when a part fails.
//
// A lab is a row of the table labs() and a function. It describes its parts with Lab::part(), fills in the
// page, the table and the JSON document, and the frame writes report.html, results.json, results.csv and one
// SVG file per figure. A part that fails is named in all of them and on stderr, and sets the exit code; the
// others still run. After SIGINT or SIGTERM the remaining parts are named as not run.
#pragma once

#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/command_line.h"
#include "cli/lab_values.h"
#include "yoke/base/clock.h"
#include "yoke/report/lab_page.h"
#include "yoke/report/table.h"

namespace yoke::cli {

class Lab {
 public:
  Lab(const CommandLine& line, LabValues values, std::filesystem::path out);

  const CommandLine& line;
  const LabValues values;  // of labs without arguments of their own
  const std::filesystem::path out;
  const bool quick;

  bool was_given(const std::string& flag) const;
  // Of labs with arguments of their own: what --quick makes of an option that was not typed.
  template <class T>
  void quick_default(const std::string& flag, T& argument, const T& value) const {
    if (quick && !was_given(flag)) argument = value;
  }

  // Announces the number of parts, for the time left.
  void expect(size_t parts) { expected_ = parts; }

  // Runs `body`. False: it failed, or was not started because of a signal. A ConfigError of the first part
  // is thrown: the request is wrong, not the part.
  bool part(const std::string& name, const std::function<void()>& body);
  bool interrupted() const;
  const std::vector<std::string>& failed() const { return failed_; }
  int exit_code() const { return code_; }
  double seconds() const { return watch_.seconds(); }  // since the start

  // Filled in by the lab.
  report::LabPage page;
  nlohmann::json document = {{"results", nlohmann::json::array()}};
  std::string csv = {};   // empty: the rows of document["results"]
  std::string text = {};  // for people

  // Adds a table to `text`, with a line below it.
  void print(const report::LabTable& table, const std::string& below);
  // The same, and to the page. `below` is for `text` only, the table's notes for the page.
  void show(const report::LabTable& table, const std::string& below = "");
  // A row of document["results"].
  void result(nlohmann::json row) { document["results"].push_back(std::move(row)); }

 private:
  void announce(const std::string& name) const;
  void fail(const std::string& name, const std::string& reason, int code);

  Stopwatch watch_;
  size_t expected_ = 0, begun_ = 0;
  std::vector<std::string> failed_;
  int code_ = 0;
};

// One row of the table.
struct LabRow {
  std::string name;
  std::string question;  // one sentence
  std::string time;      // that it takes with its defaults on a laptop with two cores
  std::string example;
  std::vector<LabOption> options;                          // of LabValues
  void (*add_options)(CLI::App&, CommandLine&) = nullptr;  // of labs with arguments of their own
  bool trains = false;                                     // reads a configuration
  void (*run)(Lab&) = nullptr;
};

const std::vector<LabRow>& labs();

// The scalar fields of `rows`, one line each, with a heading.
std::string csv_of(const nlohmann::json& rows);

int list_labs(const CommandLine& line);
// Runs the lab that the command line names: "lab pipeline".
int run_lab(const CommandLine& line);

}  // namespace yoke::cli
