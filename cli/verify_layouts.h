// The layouts of `yoke verify`: each is a configuration that `yoke train` would accept.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cli/command_line.h"
#include "cli/run_config.h"

namespace yoke::cli {

// One layout: words that are abbreviations of configuration keys.
struct Layout {
  std::string text;
  std::vector<config::Override> overrides;
};

// "data=2; data=4,accumulate=2; pipeline=2,schedule=gpipe,microbatches=4". Throws ConfigError that lists the
// known words.
std::vector<Layout> parse_layouts(const std::string& text);

struct LayoutConfiguration {
  std::string text;
  Configuration configuration;  // data.batch_size is that of one device, which the layout divides
  int ranks = 1;                // workers; 1 if replicas are threads
  int64_t copies = 1;           // of the model, each on its part of the batch
};

// The layouts of --layouts, parsed and checked like `yoke train`. Throws ConfigError that names the layout.
std::vector<std::unique_ptr<LayoutConfiguration>> layout_configurations(const CommandLine& line);

}  // namespace yoke::cli
