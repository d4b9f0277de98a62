// The checkpoints of a run on disk: list, verify, prune.
//
//   OUT/checkpoints/step-1200/   manifest.json, *.safetensors, and COMMITTED with the manifest's digest
//   OUT/checkpoints/latest       name of the newest one, for people and scripts; not used here
//
// `dir` is the run's folder (OUT), its checkpoints folder, or one checkpoint. step-N.tmp is an unfinished
// save; step-N.replaced is the old checkpoint of a step that was just saved again.
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
  std::string problem;  // if not ok: names the file
  uint64_t bytes = 0;   // of its files, if the manifest is readable
};

// All checkpoints, oldest first. ok: committed, manifest intact, every file present with its size. Throws
// ConfigError if `dir` is not a folder.
std::vector<Verdict> list(const std::filesystem::path& dir);

// Like list(), and ok also requires that all digests match: reads everything.
std::vector<Verdict> verify(const std::filesystem::path& dir);

// One checkpoint's folder, including digests.
Verdict verify_one(const std::filesystem::path& checkpoint);

struct Choice {
  std::optional<Verdict> newest;     // the newest usable one
  std::vector<Verdict> passed_over;  // newer unusable ones, newest first
};

// Returns "" or why this intact checkpoint cannot be used.
using Accept = std::function<std::string(const Verdict&)>;

// Empty if there is none, or no such folder. `accept`, if given, is asked for each intact candidate.
Choice newest_good(const std::filesystem::path& dir, const Accept& accept = nullptr);

// The manifest of a good checkpoint. Throws ConfigError.
Manifest read_manifest(const std::filesystem::path& checkpoint);

// After `step` was saved: removes checkpoints older than the `keep` newest good ones, replaced ones, and
// unfinished saves. Older ones stay until there are `keep` good ones. Checkpoints of later steps belong to a
// run that was abandoned for this one: they are renamed to step-N.abandoned, so that none is mistaken for the
// newest, and removed with the old ones. Checkpoints in `known_good` are not verified again; those verified
// now are added. Only for the process that saves here. Throws ConfigError if something cannot be removed.
void prune(const std::filesystem::path& dir, int64_t step, int64_t keep,
           std::set<std::filesystem::path>& known_good, const Failpoint& failpoint = nullptr);

// "step-1200" and "step-1200.replaced" -> 1200; empty for other names, step-N.tmp included.
std::optional<int64_t> step_of(const std::string& name);

}  // namespace yoke::checkpoint::format
