// The commands of `yoke-torch`, by name.
#pragma once

#include "cli/command_line.h"

namespace yoke::cli {

int run_train(const CommandLine& line);
int run_ps_join(const CommandLine& line);  // as a worker
int run_eval(const CommandLine& line);
int run_generate(const CommandLine& line);
int run_model_info(const CommandLine& line);
int run_model_export(const CommandLine& line);
int run_bench_step(const CommandLine& line);
int run_bench_kernels(const CommandLine& line);
int run_bench_scaling(const CommandLine& line);  // as one rank
int run_verify(const CommandLine& line);
int run_estimate(const CommandLine& line);
int run_profile(const CommandLine& line);
int run_collab_start(const CommandLine& line);
int run_collab_join(const CommandLine& line);
int run_checkpoint_list(const CommandLine& line);
int run_checkpoint_verify(const CommandLine& line);
int run_checkpoint_export(const CommandLine& line);
int run_checkpoint_import(const CommandLine& line);
int run_doctor(const CommandLine& line);
int list_faults(const CommandLine& line);  // of doctor --faults

struct Command {
  const char* name;
  int (*run)(const CommandLine& line);
};

inline constexpr Command kCommands[] = {
    {"train", run_train},
    {"ps join", run_ps_join},
    {"eval", run_eval},
    {"generate", run_generate},
    {"model info", run_model_info},
    {"model export", run_model_export},
    {"bench step", run_bench_step},
    {"bench kernels", run_bench_kernels},
    {"bench scaling", run_bench_scaling},
    {"verify", run_verify},
    {"estimate", run_estimate},
    {"profile", run_profile},
    {"collab start", run_collab_start},
    {"collab join", run_collab_join},
    {"ckpt ls", run_checkpoint_list},
    {"ckpt verify", run_checkpoint_verify},
    {"ckpt export", run_checkpoint_export},
    {"ckpt import", run_checkpoint_import},
    {"doctor", run_doctor},
};

// Runs the command of `line`. Throws ConfigError if it is unknown.
int run_torch_command(const CommandLine& line);

}  // namespace yoke::cli
