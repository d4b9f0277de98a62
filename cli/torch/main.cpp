// The program `yoke-torch`: commands that train or measure. Users start it through `yoke`.
#include <cstdio>
#include <cstdlib>

#include "cli/output.h"
#include "cli/torch/commands.h"
#include "yoke/cluster/launcher/zygote.h"
#include "yoke/command.h"

int main(int argc, char** argv) {
  const bool forked = yoke::cluster::serve_as_zygote();
  const int code = forked ? yoke::run_command(argc, argv)
                          : yoke::cli::run_program(argc, argv, yoke::cli::run_torch_command);
  if (!yoke::cluster::zygotes_wanted()) return code;
  // Destructors of LibTorch's tables take a tenth of a second, a third of what it takes to start.
  std::fflush(nullptr);
  std::quick_exit(code);
}
