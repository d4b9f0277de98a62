// Internals of Run, shared by its sources.
#pragma once

#include <optional>
#include <string>

#include "yoke/checkpoint/checkpoint.h"
#include "yoke/checkpoint/format/folder_lock.h"
#include "yoke/engine/run.h"
#include "yoke/engine/stop_signal.h"
#include "yoke/engine/tracked.h"

namespace yoke {

struct Run::Impl {
  Impl(World& in, RunOptions with);

  void add(const std::string& name, engine::Tracked one);
  // Runs `work` on rank 0; all ranks get its result, or fail with its error.
  nlohmann::json on_first(const std::string& what, const std::function<nlohmann::json()>& work);
  checkpoint::State state();
  void restore(const checkpoint::Loaded& loaded);
  void save();
  int agreed_signal();

  World& world;
  const RunOptions options;
  torch::Device device = torch::kCPU;  // of the model, for communicators that need memory there
  checkpoint::Team team;               // used by the thread that calls Run; the writer has its own
  std::optional<checkpoint::format::FolderLock> lock;
  std::optional<checkpoint::Writer> writer;  // empty: rank 0 writes for this rank
  std::optional<engine::StopSignals> signals;
  engine::TrackedList tracked;
  bool resumed = false;
  int64_t steps = 0;
  int64_t saved = -1;  // step of the last save
  int signal = 0;
};

}  // namespace yoke
