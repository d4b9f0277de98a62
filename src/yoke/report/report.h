// report.html: a run in one self-contained file.
#pragma once

#include <filesystem>
#include <string>

#include "yoke/report/run_folder.h"

namespace yoke::report {

// One HTML document without scripts and other files, for light, dark, print and phones.
std::string to_html(const RunFolder& run);

// Reads a run's folder and writes its report; missing parts are mentioned in the report. Throws ConfigError
// if the folder contains no run or `output` cannot be written.
void write_report(const std::filesystem::path& run_dir, const std::filesystem::path& output);

}  // namespace yoke::report
