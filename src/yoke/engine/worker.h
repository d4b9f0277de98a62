// One device with a model, its optimizer and its strategy, ready to step. Used by `train` and `bench step`.
#pragma once

#include <torch/types.h>

#include <filesystem>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>

#include "yoke/compute/options.h"
#include "yoke/models/model.h"
#include "yoke/parallel/maker.h"
#include "yoke/parallel/strategy.h"

namespace yoke::engine {

struct WorkerOptions : parallel::MakeOptions {
  models::ModelOptions model;
  compute::ComputeOptions compute;
  int64_t seq_len = 0;  // of token samples; 0: the model's default
  // Host memory the caller will use besides the worker, for recomputation budgets on the CPU.
  int64_t batches_ahead = 0;   // prepared by loaders
  bool copies_state = false;   // checkpoints are written from a copy
  double label_smoothing = 0;  // of training losses
  int64_t seed = 1;
  torch::ScalarType type = torch::kFloat32;  // of weights; kFloat64 if rounding must not matter
  std::string init;                          // safetensors; empty: initialised
  bool values_follow = false;                // all values are restored later: none are drawn or exchanged
  int local_rank = 0;  // among the ranks of this machine, which share its devices and cores
  int local_ranks = 1;
  std::filesystem::path tuning_file;  // file for measured choices; empty: not stored

  // One device without peers.
  WorkerOptions alone() const;
};

// The options of one of `ranks`, in lockstep.
WorkerOptions on_ranks(WorkerOptions options, comm::Communicator& ranks);

struct Worker : parallel::Kit {
  std::unique_ptr<WorkerOptions> options;                          // it was created with
  int64_t parameters = 0;                                          // elements of the whole model
  int64_t evaluation_batch = std::numeric_limits<int64_t>::max();  // the largest within a memory budget
  std::unique_ptr<parallel::Strategy> strategy;
};

// Sets threads and seed of the process and creates everything. Throws ConfigError (device, sizes) or
// CheckpointError (weights of another model).
std::unique_ptr<Worker> make_worker(const WorkerOptions& options);

}  // namespace yoke::engine
