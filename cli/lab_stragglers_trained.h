// The same model trained under each rule of parameter servers.
#pragma once

#include "cli/lab.h"

namespace yoke::cli {

// Throws ConfigError unless `policies` is "all" or a list of rules.
std::vector<std::string> chosen_rules(const std::string& policies);

// Adds the comparison to the page and its rows to the results.
void train_under_rules(Lab& lab, const LabArguments& arguments);

}  // namespace yoke::cli
