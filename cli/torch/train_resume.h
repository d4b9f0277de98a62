// Where a run starts: from scratch, from weights, or from a checkpoint.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>

#include "cli/command_line.h"
#include "cli/run_config.h"
#include "yoke/checkpoint/checkpoint.h"
#include "yoke/checkpoint/format/folder_lock.h"
#include "yoke/engine/run_state.h"
#include "yoke/metrics/summary.h"
#include "yoke/parallel/membership.h"

namespace yoke::cli {

struct Resume {
  std::optional<checkpoint::format::FolderLock> lock;  // of out.dir: first rank only
  std::optional<checkpoint::Loaded> checkpoint;        // empty: a fresh start
  std::optional<metrics::Summary> kept;                // of the previous run: first rank only
  // Known to all ranks.
  int64_t kept_steps = -1;
  bool kept_evaluated = false;
  bool in_memory = false;  // from the last epoch of this job, not from disk
  // In memory, in shards: restores parameters, buffers and optimizer state in place of the checkpoint's.
  std::function<void(engine::Worker&)> fill;

  explicit operator bool() const { return checkpoint.has_value(); }
  std::optional<int64_t> resumed_from(const engine::Progress& progress) const {
    return checkpoint ? std::optional(progress.step) : std::nullopt;
  }
};

// Locks out.dir and looks for the state to resume from. Only the first rank reads all bytes, and it decides.
// Collective. A file of weights (--init) that a resumed run does not use is checked and mentioned. Throws
// ConfigError and CheckpointError.
Resume find_resume(const TrainArguments& arguments, const RunConfig& config, parallel::Membership& member);

// Logs where a resumed run starts, `note` (cli/torch/resume_note.h), and which relevant settings have
// changed.
void tell_resume(const Resume& resume, const engine::Progress& progress, int64_t total_steps,
                 const Configuration& configuration, const std::string& note);

// Whether the run is complete and its result exists.
bool nothing_left(const Resume& resume, const engine::Progress& progress, int64_t total_steps, bool evaluate);

// Logs so, and prints the stored result. On the first rank.
void tell_nothing_left(const Resume& resume, const engine::Progress& progress, int64_t total_steps,
                       const CommandLine& line, const RunConfig& config);

}  // namespace yoke::cli
