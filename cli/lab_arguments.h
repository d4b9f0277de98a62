// Arguments of `yoke lab`.
#pragma once

#include <cstdint>
#include <string>

namespace CLI {
class App;
}

namespace yoke::cli {

struct LabArguments {
  std::string file;
  bool trained = false;  // train the recipe of the lab
  std::string policies = "all";
  int64_t workers = 4;
  int64_t servers = 1;
  int64_t k = 0;  // 0: half of the workers
  std::string max_delay = "2";
  std::string delay = "none";
  std::string delay_workers;  // empty: all
  double target_loss = 0;     // 0: the loss that all of them reach
  bool fault_free = false;    // also run each rule without delays
};

struct AveragingLabArguments {
  std::string file;
  std::string methods = "all";
  int64_t workers = 4;
  int64_t every = 8;
  int64_t steps = 0;  // 0: train.steps
  std::string bandwidth = "100mbit";
  std::string latency = "1ms";
  std::string compute;     // of a step; empty: measured
  double target_loss = 0;  // 0: what all of them reach
};

struct SparseLabArguments {
  std::string file;  // libsvm; empty: generated
  int64_t examples = 100'000;
  int64_t keys = 1'000'000;
  int64_t per_example = 30;
  int64_t workers = 4;
  int64_t servers = 2;
  int64_t blocks = 64;
  double l1 = 4;
  int64_t passes = 15;
  std::string max_delays = "0,1,2,4,8,16";
  double damping = 0.1;
  std::string delay = "none";
  std::string delay_workers;  // empty: all
  std::string backend = "shm";
  int64_t seed = 1;
};

struct DownpourLabArguments {
  std::string file;
  std::string methods = "all";
  int64_t workers = 4;
  int64_t servers = 1;
  double epochs = 8;
  double adagrad_lr = 0.01;
  int64_t lbfgs_batch = 0;     // per worker; 0: 8 times data.batch_size
  double target_accuracy = 0;  // 0: what all of them reach
};

// Adds the options of the command, which fill `arguments`.
void add_options(CLI::App& command, LabArguments& arguments);
void add_options(CLI::App& command, AveragingLabArguments& arguments);
void add_options(CLI::App& command, SparseLabArguments& arguments);
void add_options(CLI::App& command, DownpourLabArguments& arguments);

}  // namespace yoke::cli
