// Where a run starts from: nothing, weights, or a checkpoint of an earlier one.
#pragma once

#include <filesystem>
#include <optional>

#include "cli/command_line.h"
#include "cli/run_config.h"
#include "yoke/checkpoint/checkpoint.h"
#include "yoke/checkpoint/format/folder_lock.h"
#include "yoke/engine/run_state.h"
#include "yoke/metrics/summary.h"

namespace yoke::cli {

struct Resume {
  std::optional<checkpoint::format::FolderLock> lock;  // of out.dir: the first rank's
  std::optional<checkpoint::Loaded> checkpoint;        // nothing: a fresh start
  std::optional<metrics::Summary> kept;                // of the run before: the first rank's
  // What all ranks know of it.
  int64_t kept_steps = -1;
  bool kept_evaluated = false;

  std::optional<int64_t> resumed_from(const engine::Progress& progress) const {
    return checkpoint ? std::optional(progress.step) : std::nullopt;
  }
};

// Takes out.dir and looks for the state to resume from. The first rank chooses, it alone reads all bytes;
// with a team it is collective. A file of weights (--init) that a resumed run does not use is checked and
// named. Throws ConfigError and CheckpointError.
Resume find_resume(const TrainArguments& arguments, const std::filesystem::path& out,
                   const checkpoint::Team& team, bool first);

// Says where a resumed run stands, `note` (cli/torch/resume_note.h), and which settings that matter have
// changed.
void tell_resume(const Resume& resume, const engine::Progress& progress, int64_t total_steps,
                 const Configuration& configuration, const std::string& note);

// Whether the run is done and its result is there.
bool nothing_left(const Resume& resume, const engine::Progress& progress, int64_t total_steps, bool evaluate);

// Says so, and prints the result that is kept. On the first rank.
void tell_nothing_left(const Resume& resume, const engine::Progress& progress, int64_t total_steps,
                       const CommandLine& line, const RunConfig& config);

}  // namespace yoke::cli
