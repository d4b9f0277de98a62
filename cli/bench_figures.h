// Pages of `yoke bench step|scaling|collectives`, from the rows of their JSON documents.
#pragma once

#include <nlohmann/json.hpp>

#include "cli/command_line.h"
#include "yoke/report/lab_page.h"

namespace yoke::cli {

report::LabPage step_figures(const nlohmann::json& rows);
report::LabPage scaling_figures(const nlohmann::json& rows);
report::LabPage collectives_figures(const nlohmann::json& rows);

// The page with the command that made it.
report::LabPage titled(report::LabPage page, const CommandLine& line);

}  // namespace yoke::cli
