// Saves the state of a run in the background, and restores it.
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

// Everything a run needs to resume exactly.
struct State {
  std::vector<NamedTensor> model;      // parameters and buffers
  std::vector<NamedTensor> optimizer;  // optimizer state, masters included
  // Step, data position, random states, scaler, configuration, tuned choices.
  nlohmann::json rest = nlohmann::json::object();
};

// Saves into `dir`/step-N (dir is OUT/checkpoints), in the background by default. Not thread-safe.
//
// A failed save (full disk, missing folder) does not end the run: it is logged with its reason and the last
// good checkpoint, older checkpoints stay, its partial files are removed, and the next save() tries again.
// Call confirm() if the newest state must be safe. Only a failed peer is thrown, as CommError, because the
// ranks of a team can no longer agree.
class Writer {
 public:
  // With a team every rank saves its own part concurrently, and rank 0 of the team commits once all have
  // written: save() is then collective, with the same steps on all ranks. `rest` is that of rank 0. If one
  // rank fails, the save fails on all of them; rank 0 logs the warning.
  Writer(std::filesystem::path dir, CheckpointOptions options, format::Failpoint failpoint = nullptr,
         Team team = {});
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;
  // Finishes the save in flight; a failure is logged.
  ~Writer();

  // Optional: allocates the host memory that save() copies into, so that the first save is as fast as the
  // others.
  void reserve(const State& state);

  // Returns once the tensors are copied and may change. Waits for the previous save and its removal of old
  // checkpoints, if they are not finished. Throws CommError only.
  void save(int64_t step, const State& state);

  // Returns once nothing is being written: the newest state is safe on disk, or its save failed. Old
  // checkpoints may still be being removed. Throws CommError only.
  void wait();

  // Waits, and throws CheckpointError if the newest save() failed. Same result on all ranks of a team.
  void confirm();

 private:
  void finish_all();
  void tidy(int64_t step);
  struct Tensors {
    std::vector<NamedTensor> list;
    format::Readiness ready;
  };
  struct Parts {
    Tensors model, optimizer;
    std::exception_ptr trouble;  // error of preparing them; raised where all ranks of a team meet
  };
  Parts begin(const State& state);
  // Returns the reason of a failure, which was logged, or "". Throws CommError.
  std::string write(int64_t step, const Parts& parts, const nlohmann::json& rest);
  void write_alone(int64_t step, const Parts& parts, const nlohmann::json& rest);
  void write_together(int64_t step, const Parts& parts, const nlohmann::json& rest);
  void fill(const State& state);
  std::string last_good() const;

  std::filesystem::path dir_;
  CheckpointOptions options_;
  format::Failpoint failpoint_;
  Team team_;
  Snapshot model_, optimizer_;
  std::set<std::filesystem::path> known_good_;  // used by the writing thread only
  std::future<std::string> pending_;            // save in flight: reason of its failure
  std::future<void> thread_;                    // the save, and the removal of old checkpoints after it
  int64_t newest_ = 0;                          // step of the newest save
  std::string failure_;                         // reason of its failure
};

struct Loaded {
  int64_t step = 0;
  std::filesystem::path path;
  std::vector<format::Verdict> passed_over;  // newer unusable ones, newest first, with reasons
  State state;                               // tensors are memory-mapped and read-only
};

// The newest intact checkpoint (all digests verified) in `dir`: a run's folder, its checkpoints folder, or
// one checkpoint. Empty if there is none, or no such folder. Throws CheckpointError if there are checkpoints
// but none is usable.
std::optional<Loaded> load_newest(const std::filesystem::path& dir);

// Like load_newest(), but throws CheckpointError if there is none.
Loaded load(const std::filesystem::path& path);

// Opens a checkpoint that is known to be intact: does not verify digests. Throws ConfigError.
Loaded open(const std::filesystem::path& checkpoint);

}  // namespace yoke::checkpoint
