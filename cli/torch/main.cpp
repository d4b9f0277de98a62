// The program `yoke-torch`: commands that train or measure. Users start it through `yoke`.
#include "cli/output.h"
#include "cli/torch/commands.h"

int main(int argc, char** argv) {
  return yoke::cli::run_program(argc, argv, yoke::cli::run_torch_command);
}
