// The words of the command line as plain values. One list of commands serves both programs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "yoke/config/schema.h"

namespace yoke::cli {

struct TrainArguments {
  std::string file;
  std::string resume = "auto";  // auto, never, or a checkpoint's folder
  std::string init;             // safetensors
};

struct EvalArguments {
  std::string file;
  std::string init;
  std::string inputs;
  std::string outputs;
};

struct ModelArguments {
  std::string name;
  std::string output;
};

struct BenchStepArguments {
  std::vector<std::string> models;
  std::vector<int64_t> batches = {64};
  std::vector<std::string> precisions = {"fp32"};
  std::vector<std::string> recomputes = {"none"};
  std::vector<std::string> devices = {"cpu"};
  int64_t threads = 0;
  int64_t steps = 20;
};

struct BenchMessengerArguments {
  std::vector<std::string> backends = {"shm"};
  std::vector<std::string> bytes = {"0", "1K", "64K", "1M"};
  double seconds = 1;
};

struct CheckpointArguments {
  std::string path;
  std::string output;
};

struct ReportArguments {
  std::string directory;
  std::string output;
};

struct RunArguments {
  std::vector<std::string> words;  // all of them: flags of its own, then a program with its own
};

struct CommandLine {
  std::string command;  // "train", "model info", "ckpt verify", …
  bool json = false;
  bool quiet = false;
  std::string typed;                        // the whole command, for reports
  std::vector<config::Override> overrides;  // --section.key and --set
  std::string config_file;                  // config show
  TrainArguments train;
  EvalArguments eval;
  ModelArguments model;
  BenchStepArguments bench_step;
  BenchMessengerArguments bench_messenger;
  CheckpointArguments checkpoint;
  ReportArguments report;
  RunArguments run;
};

// Parses the words after the program's name. Prints help or the version and exits where that was asked.
// Throws ConfigError for anything it does not understand.
CommandLine parse_command_line(std::vector<std::string> words);

// Whether the command runs in the program that links LibTorch.
bool needs_torch(const std::string& command);

}  // namespace yoke::cli
