// Saving a run's state while it goes on, and taking it up again.
#pragma once

#include <cstdint>
#include <filesystem>
#include <future>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "yoke/base/error.h"
#include "yoke/checkpoint/format/folder.h"
#include "yoke/checkpoint/options.h"
#include "yoke/checkpoint/snapshot.h"
#include "yoke/checkpoint/team.h"
#include "yoke/checkpoint/tensors.h"

namespace yoke::checkpoint {

// All that a run needs to go on as if nothing had happened.
struct State {
  std::vector<NamedTensor> model;      // parameters and buffers
  std::vector<NamedTensor> optimizer;  // optimizer state, masters included
  nlohmann::json rest =
      nlohmann::json::object();  // step, data position, random states, scaler, configuration, tuned choices
};

// Saves into `dir`/step-N (dir is OUT/checkpoints), in the background unless told otherwise. One thread calls
// it.
//
// A save that fails loses nothing: older checkpoints stay, its own half-written files are removed, and the
// Writer can save again. The failure of a background save is thrown by the next save() or wait(), as the
// Error it was (a full or read-only disk: ConfigError), together with where the last good checkpoint is.
class Writer {
 public:
  // With a team every rank saves its own part of the state, at the same time, and the first one commits when
  // all have written: save() is collective then, with the same steps on all ranks. `rest` is the first one's.
  // A failure of one is thrown on all of them.
  Writer(std::filesystem::path dir, CheckpointOptions options, format::Failpoint failpoint = nullptr,
         Team team = {});
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;
  // Finishes the save that is under way; a failure is logged.
  ~Writer();

  // Makes the host memory that save() copies into, so that the first save is as quick as the others.
  // Optional.
  void reserve(const State& state);

  // Returns once the tensors are copied: they may change then. Waits for the save before, and for the removal
  // of old checkpoints after it, if those are not finished.
  void save(int64_t step, const State& state);

  // Returns when everything is safe on disk. Old checkpoints may still be on their way out.
  void wait();

 private:
  void finish_all();
  void tidy(int64_t step);
  struct Tensors {
    const std::vector<NamedTensor>& list;
    format::Readiness ready;
  };
  void write(int64_t step, const Tensors& model, const Tensors& optimizer, const nlohmann::json& rest);
  void write_together(int64_t step, const Tensors& model, const Tensors& optimizer,
                      const nlohmann::json& rest);
  void copy(const State& state);
  [[noreturn]] void explain_and_throw(ExitCode code, int64_t step, const std::string& text) const;

  std::filesystem::path dir_;
  CheckpointOptions options_;
  format::Failpoint failpoint_;
  Team team_;
  Snapshot model_, optimizer_;
  std::set<std::filesystem::path> known_good_;  // touched by the writing thread only
  std::future<void> pending_;                   // the save
  std::future<void> thread_;                    // the save, and the removal of what is too old after it
};

struct Loaded {
  int64_t step = 0;
  std::filesystem::path path;
  std::vector<format::Verdict> passed_over;  // newer ones that cannot be used, newest first, with reasons
  State state;                               // tensors are mapped and read-only
};

// The newest checkpoint below `dir` (a run's folder, its checkpoints folder, or one checkpoint) whose every
// byte is as it was written. Empty where there is none, or no such folder. Throws CheckpointError where there
// are some and none is good.
std::optional<Loaded> load_newest(const std::filesystem::path& dir);

// The same, where there must be one: throws CheckpointError otherwise.
Loaded load(const std::filesystem::path& path);

// One checkpoint's folder that somebody has found good: reads no digests. Throws ConfigError.
Loaded open(const std::filesystem::path& checkpoint);

}  // namespace yoke::checkpoint
