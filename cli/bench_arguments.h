// Arguments of `yoke bench step|kernels|scaling|collectives|messenger`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace yoke::cli {

struct BenchStepArguments {
  std::vector<std::string> models;
  std::vector<int64_t> batches = {64};
  std::vector<std::string> precisions = {"fp32"};
  std::vector<std::string> recomputes = {"none"};
  std::vector<std::string> devices = {"cpu"};
  int64_t threads = 0;
  int64_t steps = 20;
  bool largest_batch = false;  // instead of `batches`
  bool anatomy = false;
  std::string result_file;  // set: this process measures for another, which reads that file
};

struct BenchKernelsArguments {
  std::string device = "cpu";
  std::string precision = "fp32";
  int64_t rows = 0;  // 0: by device
};

struct BenchScalingArguments {
  std::vector<std::string> models;
  std::vector<int> nproc = {1, 2};
  std::vector<int64_t> batches = {64};
  std::vector<std::string> precisions = {"fp32"};
  std::vector<std::string> buckets = {"25MB"};
  std::string device = "cpu";
  std::string backend = "auto";
  int64_t threads = 1;
  int64_t steps = 50;
  std::string result_file;  // set: this process is a rank and writes its results there
};

struct BenchCollectivesArguments {
  int nproc = 0;   // 0: one rank of the launcher's world
  int spares = 0;  // ranks behind them that only sum
  std::string backend = "auto";
  std::vector<std::string> ops = {"all_reduce"};
  std::vector<std::string> bytes = {"1K", "64K", "1M", "16M", "64M"};
  std::string dtype = "fp32";
  std::string reduce = "sum";
  std::vector<std::string> algorithms = {"auto"};
  int iterations = 0;
  bool check = true;
  std::string memory = "shared";
  double timeout = 60;
  std::string result_file;  // set: rank 0 writes its results there instead of showing them
};

struct BenchMessengerArguments {
  std::vector<std::string> backends = {"shm"};
  std::vector<std::string> bytes = {"0", "1K", "64K", "1M"};
  double seconds = 1;
};

// Adds the options of a command, which fill `arguments`.
void add_options(CLI::App& command, BenchStepArguments& arguments);
void add_options(CLI::App& command, BenchKernelsArguments& arguments);
void add_options(CLI::App& command, BenchScalingArguments& arguments);
void add_options(CLI::App& command, BenchCollectivesArguments& arguments);
void add_options(CLI::App& command, BenchMessengerArguments& arguments);

}  // namespace yoke::cli
