#include "cli/torch/commands.h"

#include "cli/program.h"
#include "yoke/base/error.h"
#include "yoke/command.h"

namespace yoke {

namespace cli {

int run_torch_command(const CommandLine& line) {
  for (const Command& command : kCommands) {
    if (line.command == command.name) return command.run(line);
  }
  throw ConfigError("`{}` is a command of `yoke`, not of `yoke-torch`. Use `yoke {}`.", line.command,
                    line.command);
}

}  // namespace cli

int run_command(int argc, char** argv) {
  return cli::run_commands(argc, argv, [](const std::vector<std::string>& words) {
    return cli::run_torch_command(cli::parse_command_line(words));
  });
}

}  // namespace yoke
