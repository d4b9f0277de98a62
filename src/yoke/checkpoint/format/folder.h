// The checkpoints of a run as they lie on disk: which there are, which are good, which may go.
//
//   OUT/checkpoints/step-1200/   manifest.json, *.safetensors, and COMMITTED, which holds the manifest's
//   digest OUT/checkpoints/latest       the newest one's name, for people and scripts; nothing here relies on
//   it
//
// `dir` is the run's folder (OUT), its checkpoints folder, or one checkpoint. step-N.tmp is a save that was
// not finished; step-N.replaced is the old checkpoint of a step that was just saved again.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "yoke/checkpoint/format/durable_file.h"
#include "yoke/checkpoint/format/manifest.h"

namespace yoke::checkpoint::format {

constexpr const char* kManifestName = "manifest.json";
constexpr const char* kCommittedName = "COMMITTED";

struct Verdict {
  std::filesystem::path path;
  int64_t step = 0;
  bool ok = false;
  std::string problem;  // why not ok: names the file
  uint64_t bytes = 0;   // of its files, where the manifest could be read
};

// All checkpoints, oldest first. ok means: committed, manifest intact, every file there with its size.
// Throws ConfigError where `dir` is no folder.
std::vector<Verdict> list(const std::filesystem::path& dir);

// The same, and ok means also that every file has its digest: reads everything.
std::vector<Verdict> verify(const std::filesystem::path& dir);

// One checkpoint's folder, digests included.
Verdict verify_one(const std::filesystem::path& checkpoint);

struct Choice {
  std::optional<Verdict> newest;     // the newest good one
  std::vector<Verdict> passed_over;  // newer ones that cannot be used, newest first
};

// Returns "" or why this good checkpoint cannot be used all the same.
using Accept = std::function<std::string(const Verdict&)>;

// Empty where there is none, or no such folder. `accept`, where given, has the last word on each candidate.
Choice newest_good(const std::filesystem::path& dir, const Accept& accept = nullptr);

// The manifest of a good checkpoint. Throws ConfigError.
Manifest read_manifest(const std::filesystem::path& checkpoint);

// After `step` was saved: removes what is older than the `keep` newest good checkpoints, and unfinished
// saves. Nothing goes before `keep` good ones are there. Checkpoints of later steps are of a run that was
// given up for this one: they become step-N.abandoned, so that none of them is taken for the newest, and go
// with the old ones. Those in `known_good` are taken to have their digests; what is verified now is added.
// Only for the process that saves here. Throws ConfigError where something cannot be removed.
void prune(const std::filesystem::path& dir, int64_t step, int64_t keep,
           std::set<std::filesystem::path>& known_good, const Failpoint& failpoint = nullptr);

// "step-1200" -> 1200; empty for other names, step-N.tmp included.
std::optional<int64_t> step_of(const std::string& name);

}  // namespace yoke::checkpoint::format
