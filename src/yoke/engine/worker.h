// One device with a model, its optimizer and its strategy, ready to step. `train` and `bench step` both use
// it.
#pragma once

#include <torch/types.h>

#include <filesystem>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>

#include "yoke/comm/communicator.h"
#include "yoke/compute/options.h"
#include "yoke/compute/precision.h"
#include "yoke/models/model.h"
#include "yoke/optim/grad_scaler.h"
#include "yoke/optim/optimizer.h"
#include "yoke/parallel/ddp/options.h"
#include "yoke/parallel/ddp/zero/shards.h"
#include "yoke/parallel/pipeline/options.h"
#include "yoke/parallel/pipeline/pipeline_strategy.h"
#include "yoke/parallel/ps/setup.h"
#include "yoke/parallel/strategy.h"

namespace yoke::engine {

// Stages on the ranks of `world`.
struct PipelineSetup {
  int stages = 1;               // 1: no pipeline
  int copies = 1;               // of it, each on its part of the batch
  std::vector<int> replicas{};  // of each stage, inside each copy; empty: one
  parallel::PipelineOptions options{};
  comm::Communicator* world = nullptr;
};

struct WorkerOptions {
  models::ModelOptions model;
  optim::OptimizerOptions optimizer;
  compute::ComputeOptions compute;
  int64_t batch_size = 1;  // of one micro-batch; recomputation budgets are for it
  int64_t seq_len = 0;     // of token samples; 0: what the model takes
  // What the caller will hold on the host besides the worker, for recomputation budgets on the CPU.
  int64_t batches_ahead = 0;  // prepared by loaders
  bool copies_state = false;  // checkpoints are written from a copy
  int64_t accumulate = 1;
  bool equal_batches = true;     // every batch has batch_size samples: steps may be recorded (CUDA graphs)
  bool skip_non_finite = false;  // train.non_finite = "skip"
  int64_t seed = 1;
  torch::ScalarType type = torch::kFloat32;  // of weights; kFloat64 where rounding must not be seen
  std::string init;                          // safetensors; empty: fresh weights
  comm::Communicator* replicas = nullptr;    // those who train the same model; null: nobody
  PipelineSetup pipeline;                    // instead of replicas
  int local_rank = 0;  // among the ranks of this machine, which share its devices and cores
  int local_ranks = 1;
  int64_t threads = 1;          // replicas in this process: parallel.sync = "threads"
  int64_t zero = 0;             // what replicas spread among them: parallel.zero
  bool sync_batchnorm = false;  // statistics of all replicas' batches
  DdpOptions ddp;
  std::optional<parallel::PsSetup> ps;  // parameter servers; `replicas` is null then
  ps::SlowdownOptions slowdown;         // of replicas; workers of parameter servers have theirs in `ps`
  std::filesystem::path tuning_file;    // measured choices are remembered here; empty: not at all
};

// The options of one of `ranks`, which are the stages and copies of its pipeline or replicas of one model.
WorkerOptions on_ranks(WorkerOptions options, comm::Communicator& ranks);

struct Worker {
  torch::Device device = torch::kCPU;
  Precision precision = Precision::kFp32;
  Precision autocast = Precision::kFp32;  // kFp32 also where the weights themselves are bf16
  // Brings an input of the model to the device, in the format its weights have.
  std::function<torch::Tensor(const torch::Tensor&)> place;
  std::unique_ptr<comm::Communicator> norms;  // of BatchNorm layers that share their statistics
  models::Model model;
  std::vector<compute::Segment> segments;  // which blocks are computed again in backward
  int64_t evaluation_batch = std::numeric_limits<int64_t>::max();  // the largest that keeps within a budget
  std::unique_ptr<parallel::Shards> shards;        // with parallel.zero: `optimizer` is of this rank's part
  std::unique_ptr<parallel::PipelineStage> stage;  // null: this rank has the whole model
  optim::GradScaler scaler;
  std::unique_ptr<optim::Optimizer> optimizer;
  std::unique_ptr<parallel::Strategy> strategy;
  parallel::PipelineStrategy* pipeline = nullptr;  // the strategy, where it is one
};

// Sets threads and seed of the process, builds everything. Throws ConfigError (device, sizes) or
// CheckpointError (weights of another model).
std::unique_ptr<Worker> make_worker(const WorkerOptions& options);

}  // namespace yoke::engine
