// The program `yoke-torch`: commands that train or measure. People start it through `yoke`.
#include "cli/output.h"
#include "cli/torch/commands.h"
#include "yoke/base/error.h"

int main(int argc, char** argv) {
  using namespace yoke::cli;
  return run_program(argc, argv, [](const CommandLine& line) {
    for (const Command& command : kCommands) {
      if (line.command == command.name) return command.run(line);
    }
    throw yoke::ConfigError("`{}` is a command of `yoke`, not of `yoke-torch`. Start `yoke {}`.",
                            line.command, line.command);
  });
}
