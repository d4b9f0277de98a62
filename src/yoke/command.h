// The complete `yoke` command line for a program with its own models, data sets and rules.
//
//   int main(int argc, char** argv) {
//     yoke::register_model("mine", make_my_model);
//     yoke::register_data("mine", open_my_data);
//     return yoke::run_command(argc, argv);
//   }
//
// Then `my_program train my.toml --nproc 2`, `verify`, `profile`, `bench`, `report` and all other commands
// work with model.name = "mine" as with built-in models. Link with yoke::command.
#pragma once

#include "yoke/yoke.h"

namespace yoke {

// Runs the command line and returns the exit code. Ranks started by a command are further processes of this
// program, so register everything before.
int run_command(int argc, char** argv);

}  // namespace yoke
