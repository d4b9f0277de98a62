// --svg FILE and --html FILE of commands that measure or show: the charts of the labs.
#pragma once

#include <string>

namespace CLI {
class App;
}
namespace yoke::report {
class LabPage;
}

namespace yoke::cli {

struct FigureFiles {
  std::string svg;   // the first figure
  std::string html;  // a page with all of them
  bool wanted() const { return !svg.empty() || !html.empty(); }
};

void add_figure_options(CLI::App& command, FigureFiles& files);

// Before a long measurement. Throws ConfigError naming the option if its folder does not exist.
void check_figures(const FigureFiles& files);

// Throws ConfigError if a file cannot be written.
void write_figures(const FigureFiles& files, const report::LabPage& page);

}  // namespace yoke::cli
