// The command line as plain values. Both programs share one list of commands.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "cli/bench_arguments.h"
#include "cli/bench_ps_arguments.h"
#include "cli/collab_arguments.h"
#include "cli/figure_files.h"
#include "cli/lab_arguments.h"
#include "cli/plan_arguments.h"
#include "cli/ps_arguments.h"
#include "cli/text_arguments.h"
#include "cli/topo_arguments.h"
#include "yoke/config/schema.h"

namespace yoke::cli {

struct TrainArguments {
  std::string file;
  std::string resume = "auto";  // auto, never, or a checkpoint's folder
  std::string init;             // safetensors
  int nproc = 0;                // ranks to start on this machine; 0: this is a rank of a launcher, or alone
};

struct EvalArguments {
  std::string file;
  std::string init;
  std::string inputs;
  std::string outputs;
};

struct EstimateArguments {
  std::string file;
  int64_t steps = 5;    // measured; 0: none
  int64_t batch = 0;    // of the measured steps; 0: data.batch_size
  int64_t samples = 0;  // of the training set; 0: those of the data set
  int64_t replicas = 1;
  double utilisation = 0.4;  // share of the published peak
  std::string devices = "all";
};

struct ModelArguments {
  std::string name;
  std::string output;
};

struct VerifyArguments {
  std::string file;
  std::string layouts;
  int64_t steps = 10;
  std::string dtype = "fp64";
  double tolerance = 0;  // 0: 1e-10 in fp64, 1e-4 in fp32
};

struct ProfileArguments {
  std::string file;
  std::string output;
  int64_t repeats = 9;
  bool blocks = false;
};

struct CheckpointArguments {
  std::string path;
  std::string output;
  bool raw = false;  // export: the weights themselves, not their moving average
};

struct ReportArguments {
  std::vector<std::string> directories;  // several: laid over each other
  double target_loss = 0;                // 0: the lowest loss that all of them reach
  std::string output;
  std::string baseline;  // a run of the same configuration on one device
};

struct RunArguments {
  std::vector<std::string> words;  // all of them: flags of `yoke run`, then a program and its arguments
};

struct WhyArguments {
  std::string directory;
};

struct CommandLine {
  std::string command;  // "train", "model info", "ckpt verify", …
  bool json = false;
  bool quiet = false;
  std::string typed;                        // the whole command, for reports
  std::vector<std::string> words;           // the same without --nproc N, for the ranks
  std::vector<std::string> given;           // options of the command that were given: "--steps"
  std::vector<config::Override> overrides;  // --section.key and --set
  std::string config_file;                  // config show
  bool list_faults = false;                 // doctor
  TrainArguments train;
  EvalArguments eval;
  EstimateArguments estimate;
  ModelArguments model;
  FigureFiles figures;  // of commands with --svg and --html
  BenchStepArguments bench_step;
  BenchKernelsArguments bench_kernels;
  BenchScalingArguments bench_scaling;
  BenchMessengerArguments bench_messenger;
  VerifyArguments verify;
  ProfileArguments profile;
  BenchPsArguments bench_ps;
  std::string lab_output;
  bool lab_quick = false;
  std::map<std::string, std::string> lab_values;  // by flag
  LabArguments lab;
  AveragingLabArguments lab_averaging;
  SparseLabArguments lab_sparse;
  DownpourLabArguments lab_downpour;
  CollabArguments collab;
  BenchAverageArguments bench_average;
  CheckpointArguments checkpoint;
  ReportArguments report;
  RunArguments run;
  BenchCollectivesArguments bench_collectives;
  WhyArguments why;
  TopoArguments topo;
  PlanArguments plan;
  SimulateArguments simulate;
  PartitionArguments partition;
  PsArguments ps;
  TokensArguments tokens;
  GenerateArguments generate;
};

// Parses the words after the program's name. Prints help or the version and exits if requested. Throws
// ConfigError for anything it does not understand.
CommandLine parse_command_line(std::vector<std::string> words);

// Every command with its options ("--steps") and positional words ("FILE").
struct CommandOptions {
  std::string command;
  std::vector<std::string> options;
};
std::vector<CommandOptions> all_command_options();

}  // namespace yoke::cli
