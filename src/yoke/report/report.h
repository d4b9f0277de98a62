// report.html: what a run did, in one file that opens anywhere.
#pragma once

#include <filesystem>
#include <string>

#include "yoke/report/run_folder.h"

namespace yoke::report {

// One self-contained HTML document: no scripts, no other files, good in light, dark, on paper and on a phone.
std::string to_html(const RunFolder& run);

// Reads a run's folder and writes its report; what is missing there is said in the report. Throws ConfigError
// where the folder holds no run or `output` cannot be written.
void write_report(const std::filesystem::path& run_dir, const std::filesystem::path& output);

}  // namespace yoke::report
