// Checkpoints and stop signals for your own training loop, on any number of ranks.
//
//   yoke::World world = yoke::join();
//   yoke::Run run(world, {.dir = "runs/mine", .every_steps = 100});
//   run.track("model", net);                    // parameters and buffers
//   run.track("optimizer", optimizer);          // torch::optim's or Yoke's
//   run.track("data", batches);                 // the result of yoke::shard()
//   run.resume();                               // from the newest good checkpoint, if there is one
//   while (run.steps() < 1000 && !run.stopped()) {
//     …                                         // forward, backward, optimizer.step()
//     run.step();                               // counts, saves if due, checks for signals
//   }
//   run.finish();                               // the last checkpoint
//   return run.exit_code();
//
// Killed at any point and started again, it ends with the same bits (on CUDA with deterministic kernels:
// docs/determinism.md): a checkpoint also holds the number of steps and every rank's random generators. On
// another number of ranks it resumes with the same state and position, and draws new random numbers.
//
// All ranks call the same functions in the same order (collective: constructor, resume, step, save, finish).
// What is tracked must be identical on all ranks (as DistributedDataParallel keeps it); of differing buffers
// those of rank 0 are saved. All ranks must share a file system. Checkpoints are in DIR/checkpoints in the
// format of `yoke train`: `yoke ckpt ls`, `verify` and `export` read them. One thread.
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>
#include <torch/optim/optimizer.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "yoke/comm/join.h"
#include "yoke/data/loader.h"
#include "yoke/engine/resumable.h"
#include "yoke/optim/grad_scaler.h"
#include "yoke/optim/optimizer.h"

namespace yoke {

struct RunOptions {
  std::filesystem::path dir;  // for this run only: a second process in it is refused while the first runs
  int64_t every_steps = 100;  // 0: save only in save(), finish() and on a stop signal
  int64_t keep = 2;           // number of checkpoints to keep
  bool background = true;     // write while the loop continues
  bool sharded = false;       // every rank writes its share; false: rank 0 writes everything
  bool signals = true;        // INT TERM HUP USR1 USR2 XCPU stop the run after the step, with its state saved
};

class Run {
 public:
  // Locks the folder. `world` must outlive the run. Throws ConfigError: the folder is not writable, or
  // another process runs in it.
  Run(World& world, RunOptions options);
  ~Run();  // waits for the checkpoint in flight; does not save
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  // What is saved and restored, under names of your choice. Call it before resume(); what is tracked must
  // outlive the run. The module named "model" keeps its parameters' names, so that other tools can load the
  // weights; those of others are prefixed with "NAME/". Throws ConfigError for a duplicate name and for
  // optimizers whose state cannot be read (torch::optim::LBFGS).
  void track(const std::string& name, torch::nn::Module& module);
  // Including the learning rates of its groups
  void track(const std::string& name, torch::optim::Optimizer& optimizer);
  void track(const std::string& name, optim::Optimizer& optimizer);
  void track(const std::string& name, optim::GradScaler& scaler);
  void track(const std::string& name, data::Loader& loader);
  void track(const std::string& name, Resumable& state);  // yoke::shard(), or your own class
  void track(const std::string& name, int64_t& counter);
  void track(const std::string& name, torch::Tensor tensor);
  template <class Module>
  void track(const std::string& name, const torch::nn::ModuleHolder<Module>& module) {
    track(name, static_cast<torch::nn::Module&>(*module.ptr()));
  }
  template <class Owned>
  void track(const std::string& name, const std::shared_ptr<Owned>& owned) {
    track(name, *owned);
  }
  template <class Owned>
  void track(const std::string& name, const std::unique_ptr<Owned>& owned) {
    track(name, *owned);
  }

  // Restores everything that is tracked. Returns steps(): 0 in a new folder. Call it once, before step().
  // Throws CheckpointError: the checkpoint has another model, optimizer or list of names, or none of several
  // is good.
  int64_t resume();

  // Call it after each training step. Saves if due by every_steps, and if any rank received a stop signal.
  // Throws ConfigError: the state is not finite (nothing is saved then), or the disk is full.
  void step();
  int64_t steps() const;  // including those before a resume

  // Saves now, unless this step is already saved.
  void save();
  // save(), and waits until it is on disk.
  void finish();

  bool stopped() const;   // a stop signal was received; all ranks stop at the same step
  int signal() const;     // which; 0: none
  int exit_code() const;  // 0, or 128 + signal()

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace yoke
