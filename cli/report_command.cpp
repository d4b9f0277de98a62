#include "cli/report_command.h"

#include <fmt/core.h>

#include <filesystem>

#include "cli/output.h"
#include "yoke/report/report.h"

namespace yoke::cli {

int write_report(const CommandLine& line) {
  std::filesystem::path output = line.report.output;
  if (output.empty()) output = std::filesystem::path(line.report.directory) / "report.html";
  report::write_report(line.report.directory, output);
  if (line.json) {
    print_json({{"report", output.string()}});
  } else {
    fmt::print("{}\n", output.string());
  }
  return 0;
}

}  // namespace yoke::cli
