#include "cli/figure_files.h"

#include <CLI/CLI.hpp>

#include <filesystem>

#include "yoke/base/error.h"
#include "yoke/base/file.h"
#include "yoke/report/lab_page.h"

namespace yoke::cli {
namespace {

void check_folder(const char* option, const std::string& file) {
  const std::filesystem::path folder = std::filesystem::path(file).parent_path();
  if (!folder.empty() && !std::filesystem::is_directory(folder))
    throw ConfigError("{} {}: there is no folder {}. Create it first.", option, file, folder.string());
}

}  // namespace

void add_figure_options(CLI::App& command, FigureFiles& files) {
  command.add_option("--svg", files.svg, "write the figure to this file");
  command.add_option("--html", files.html, "write a page with the figures and the table");
}

void check_figures(const FigureFiles& files) {
  check_folder("--svg", files.svg);
  check_folder("--html", files.html);
}

void write_figures(const FigureFiles& files, const report::LabPage& page) {
  if (!files.svg.empty()) {
    YOKE_CHECK(!page.figures().empty(), "{} has no figure", page.title);
    write_file_atomically(files.svg, report::standalone_svg(page.figures().front().svg));
  }
  if (!files.html.empty()) write_file_atomically(files.html, page.html({}));
}

}  // namespace yoke::cli
