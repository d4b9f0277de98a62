#include "yoke/checkpoint/format/folder.h"

#include <algorithm>
#include <charconv>

#include "yoke/base/error.h"
#include "yoke/base/log.h"
#include "yoke/checkpoint/format/digest.h"

namespace yoke::checkpoint::format {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMaxManifestBytes = int64_t{256} << 20;
constexpr std::string_view kReplaced = ".replaced";
constexpr std::string_view kAbandoned = ".abandoned";

enum class Depth { kStructure, kDigests };

bool is_replaced(const fs::path& path) {
  return path.filename().string().ends_with(kReplaced);
}

std::string file_problem(const fs::path& path, const FileEntry& entry, Depth depth) {
  std::error_code error;
  uint64_t bytes = fs::file_size(path, error);
  if (error) return fmt::format("{}: {}", entry.name, error.message());
  if (bytes != entry.bytes)
    return fmt::format("{}: {} bytes, but {} were written", entry.name, bytes, entry.bytes);
  if (depth == Depth::kDigests && digest_of_file(path) != entry.digest) {
    return fmt::format("{}: its content has changed since it was written (digest mismatch)", entry.name);
  }
  return "";
}

// Fills the verdict except for path; throws if files cannot be read.
std::string find_problem(Verdict& verdict, Depth depth) {
  const fs::path& path = verdict.path;
  if (!fs::exists(path / kCommittedName))
    return "no COMMITTED file: the save was not completed, or this is not a Yoke checkpoint";
  std::string committed = read_file(path / kCommittedName, 4096);
  std::string text = read_file(path / kManifestName, kMaxManifestBytes);
  if (committed != digest_of(text) + "\n") return "the digest of manifest.json does not match COMMITTED";
  Manifest manifest = parse_manifest(text, kManifestName);
  auto step = step_of(path.filename().string());
  if (step && *step != manifest.step) return fmt::format("manifest.json is of step {}", manifest.step);
  verdict.step = manifest.step;
  for (const FileEntry& f : manifest.files) verdict.bytes += f.bytes;
  for (const FileEntry& f : manifest.files) {
    if (std::string problem = file_problem(path / f.name, f, depth); !problem.empty()) return problem;
  }
  return "";
}

Verdict judge(const fs::path& path, Depth depth) {
  Verdict verdict;
  verdict.path = path;
  verdict.step = step_of(path.filename().string()).value_or(0);
  try {
    verdict.problem = find_problem(verdict, depth);
  } catch (const Error& error) {
    verdict.problem = error.what();
  } catch (const fs::filesystem_error& error) {
    verdict.problem = error.what();
  }
  verdict.ok = verdict.problem.empty();
  return verdict;
}

bool is_one_checkpoint(const fs::path& dir) {
  if (fs::exists(dir / kCommittedName) || fs::exists(dir / kManifestName)) return true;
  return step_of(fs::absolute(dir).lexically_normal().filename().string()).has_value() &&
         !fs::is_directory(dir / "checkpoints");
}

// Paths of all checkpoints, oldest first; for one step, the replaced one first.
std::vector<fs::path> find(const fs::path& dir) {
  if (is_one_checkpoint(dir)) return {dir};
  std::vector<fs::path> found;
  for (const auto& entry :
       fs::directory_iterator(fs::is_directory(dir / "checkpoints") ? dir / "checkpoints" : dir)) {
    if (step_of(entry.path().filename().string())) found.push_back(entry.path());
  }
  std::ranges::sort(found, {}, [](const fs::path& path) {
    return std::make_tuple(*step_of(path.filename().string()), !is_replaced(path), path.filename().string());
  });
  return found;
}

std::vector<fs::path> find_or_throw(const fs::path& dir) {
  if (!fs::is_directory(dir)) {
    throw ConfigError("{}: no such folder. Give a run folder, its checkpoints folder, or one checkpoint.",
                      dir.string());
  }
  try {
    return find(dir);
  } catch (const fs::filesystem_error& error) {
    throw ConfigError("{}: cannot list: {}.", dir.string(), error.code().message());
  }
}

std::vector<Verdict> judge_all(const fs::path& dir, Depth depth) {
  std::vector<Verdict> result;
  for (const fs::path& path : find_or_throw(dir)) result.push_back(judge(path, depth));
  return result;
}

// In two steps, so that a crash in between leaves no partial checkpoint under a valid name.
void remove_checkpoint(const fs::path& path, const Failpoint& failpoint) {
  fs::path aside = path;
  aside += ".removed.tmp";
  fs::remove_all(aside);
  fs::rename(path, aside);
  if (failpoint) failpoint("prune: moved aside");
  fs::remove_all(aside);
  if (failpoint) failpoint("prune: removed");
}

// Removes the entries of `dir` for which `goes` is true.
template <class Goes>
void remove_entries(const fs::path& dir, Goes goes) {
  std::vector<fs::path> stale;
  for (const auto& entry : fs::directory_iterator(dir))
    if (goes(entry.path().filename().string())) stale.push_back(entry.path());
  for (const fs::path& path : stale) fs::remove_all(path);
}

bool is_unfinished(const std::string& name) {
  return (name.starts_with("step-") && name.ends_with(".tmp")) || name.starts_with("latest.tmp");
}

bool is_abandoned(const std::string& name) {
  return name.starts_with("step-") && name.ends_with(kAbandoned);
}

void abandon_later(const fs::path& dir, int64_t step) {
  for (const fs::path& path : find(dir)) {
    if (*step_of(path.filename().string()) <= step || !judge(path, Depth::kStructure).ok) continue;
    fs::path name = path;
    name += kAbandoned;
    fs::remove_all(name);
    fs::rename(path, name);
    log::warn(
        "{} is from an earlier, longer run; it was renamed to {} and will be removed with the old "
        "checkpoints",
        path.string(), name.filename().string());
  }
}

// Removes all but the `keep` newest good ones; false if there are fewer.
bool remove_old(const fs::path& dir, int64_t keep, std::set<fs::path>& known_good,
                const Failpoint& failpoint) {
  std::set<int64_t> good_steps;
  std::vector<fs::path> paths = find(dir);
  for (auto path = paths.rbegin(); path != paths.rend(); ++path) {
    bool enough = static_cast<int64_t>(good_steps.size()) >= keep;
    bool twice = good_steps.contains(*step_of(path->filename().string()));
    if (enough || twice) {
      remove_checkpoint(*path, failpoint);
      known_good.erase(*path);
      continue;
    }
    Verdict verdict = judge(*path, known_good.contains(*path) ? Depth::kStructure : Depth::kDigests);
    if (!verdict.ok) continue;
    known_good.insert(*path);
    good_steps.insert(verdict.step);
  }
  return static_cast<int64_t>(good_steps.size()) >= keep;
}

}  // namespace

std::optional<int64_t> step_of(const std::string& name) {
  std::string_view digits = name;
  if (!digits.starts_with("step-")) return std::nullopt;
  digits.remove_prefix(5);
  if (digits.ends_with(kReplaced)) digits.remove_suffix(kReplaced.size());
  if (digits.empty() || !std::ranges::all_of(digits, [](char c) { return c >= '0' && c <= '9'; }))
    return std::nullopt;
  int64_t step = 0;
  auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), step);
  if (error != std::errc()) return std::nullopt;
  return step;
}

std::vector<Verdict> list(const fs::path& dir) {
  return judge_all(dir, Depth::kStructure);
}

std::vector<Verdict> verify(const fs::path& dir) {
  return judge_all(dir, Depth::kDigests);
}

Verdict verify_one(const fs::path& checkpoint) {
  return judge(checkpoint, Depth::kDigests);
}

Choice newest_good(const fs::path& dir, const Accept& accept) {
  Choice choice;
  if (!fs::exists(dir)) return choice;
  std::vector<fs::path> paths = find_or_throw(dir);
  for (auto path = paths.rbegin(); path != paths.rend(); ++path) {
    Verdict verdict = judge(*path, Depth::kDigests);
    if (verdict.ok && accept) verdict.problem = accept(verdict);
    verdict.ok = verdict.problem.empty();
    if (verdict.ok) {
      choice.newest = std::move(verdict);
      break;
    }
    choice.passed_over.push_back(std::move(verdict));
  }
  return choice;
}

Manifest read_manifest(const fs::path& checkpoint) {
  fs::path path = checkpoint / kManifestName;
  return parse_manifest(read_file(path, kMaxManifestBytes), path.string());
}

void prune(const fs::path& dir, int64_t step, int64_t keep, std::set<fs::path>& known_good,
           const Failpoint& failpoint) {
  try {
    abandon_later(dir, step);
    if (remove_old(dir, keep, known_good, failpoint)) remove_entries(dir, is_abandoned);
    remove_entries(dir, is_unfinished);
  } catch (const fs::filesystem_error& error) {
    throw ConfigError("{}: cannot remove old checkpoints: {}. Check the folder's permissions.", dir.string(),
                      error.what());
  }
}

}  // namespace yoke::checkpoint::format
