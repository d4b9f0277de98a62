#include "yoke/compute/conv_path.h"

#include <ATen/Parallel.h>
#include <fcntl.h>
#include <sys/file.h>
#include <torch/version.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <ctime>
#include <limits>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "yoke/base/cpu.h"
#include "yoke/base/error.h"
#include "yoke/base/file.h"
#include "yoke/base/log.h"

namespace yoke::compute {
namespace {

constexpr std::array<std::pair<ConvPath, const char*>, 4> kNames = {
    {{ConvPath::kOneDnn, "onednn"},
     {ConvPath::kNative, "native"},
     {ConvPath::kChannelsLast, "channels_last"},
     {ConvPath::kDirect, "direct"}}};
constexpr double kMargin = 0.95;
constexpr int kRounds = 5;

// With one thread its own CPU time, which excludes other programs.
double now() {
  timespec t{};
  clock_gettime(at::get_num_threads() == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

// The minimum over several rounds, alternating the paths, so that a disturbance affects all of them. A path
// that takes twice the best after two rounds is dropped.
ConvPath fastest(const std::vector<ConvPath>& candidates, const ConvChoices::Runner& run,
                 const ConvChoices::Clock& clock) {
  std::vector<double> best(candidates.size(), std::numeric_limits<double>::infinity());
  for (ConvPath path : candidates) run(path);  // warm: workspaces, compiled kernels
  for (int round = 0; round < kRounds; ++round) {
    double least = *std::min_element(best.begin(), best.end());
    for (size_t i = 0; i < candidates.size(); ++i) {
      if (round >= 2 && best[i] > 2 * least) continue;
      double begin = clock();
      run(candidates[i]);
      best[i] = std::min(best[i], clock() - begin);
    }
  }
  size_t winner = 0;
  for (size_t i = 1; i < candidates.size(); ++i) {
    double bound = winner == 0 ? kMargin * best[0] : best[winner];
    if (best[i] < bound) winner = i;
  }
  return candidates[winner];
}

// Held while this process measures; released by the destructor.
class FileLock {
 public:
  explicit FileLock(const std::filesystem::path& path)
      : fd_(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644)) {
    bool held = static_cast<bool>(fd_);
    while (held && flock(fd_.get(), LOCK_EX) != 0) held = errno == EINTR;
    if (!held) problem_ = fmt::format("{}: cannot lock: {}", path.string(), describe_errno(errno));
  }
  const std::string& problem() const { return problem_; }  // empty: it is held

 private:
  FileDescriptor fd_;
  std::string problem_;
};

nlohmann::json read_choices(const std::filesystem::path& file) {
  if (!std::filesystem::exists(file)) return nullptr;
  auto document = nlohmann::json::parse(read_file(file, 16 << 20), nullptr, /*allow_exceptions=*/false);
  if (document.is_discarded()) {
    throw ConfigError("{}: not a file of convolution choices", file.string());
  }
  return document;
}

}  // namespace

std::string to_string(ConvPath path) {
  for (const auto& [value, name] : kNames) {
    if (value == path) return name;
  }
  return "unknown";
}

std::optional<ConvPath> parse_conv_path(const std::string& name) {
  for (const auto& [value, text] : kNames) {
    if (name == text) return value;
  }
  return std::nullopt;
}

const std::string& machine_name() {
  static const std::string name = fmt::format("torch {}, {}", TORCH_VERSION, cpu_name());
  return name;
}

namespace {
std::string key_of(const std::string& operation) {
  return machine_name() + ": " + operation;
}
}  // namespace

std::string ConvOperation::text() const {
  return layer.empty() ? what : fmt::format("{} {}x{}", what, batch, layer);
}

ConvChoices::ConvChoices() : ConvChoices(now) {}

ConvChoices& ConvChoices::global() {
  static ConvChoices choices;
  return choices;
}

void ConvChoices::set_mode(const std::string& mode) {
  std::optional<ConvPath> path = parse_conv_path(mode);
  if (!path && mode != "auto") {
    throw ConfigError("train.conv = {}: expected auto, onednn, native, channels_last, direct", mode);
  }
  std::lock_guard lock(mutex_);
  forced_ = path;
}

void ConvChoices::use_file(const std::filesystem::path& file) {
  std::lock_guard lock(mutex_);
  file_ = file;
  merge_file_locked();
}

void ConvChoices::merge_file_locked() {
  try {
    merge_locked(read_choices(file_), /*imported=*/false, file_.string());
  } catch (const ConfigError& error) {
    warn_once_locked(error.what());
  }
}

void ConvChoices::warn_once_locked(const std::string& problem) {
  if (std::exchange(warned_, true)) return;
  log::warn("{}; convolution paths are measured again, which may change the last bits of a run", problem);
}

std::optional<ConvPath> ConvChoices::known(const std::string& key,
                                           const std::vector<ConvPath>& candidates) const {
  auto entry = choices_.find(key);
  if (entry == choices_.end()) return std::nullopt;
  bool possible = std::find(candidates.begin(), candidates.end(), entry->second.path) != candidates.end();
  return possible ? std::optional(entry->second.path) : std::nullopt;
}

void ConvChoices::spare_measuring() {
  std::lock_guard lock(mutex_);
  borrows_ = true;
}

std::optional<ConvPath> ConvChoices::borrow(const ConvOperation& operation,
                                            const std::vector<ConvPath>& candidates) {
  const std::string head = key_of(operation.what) + " ", tail = "x" + operation.layer;
  std::optional<ConvPath> nearest;
  int64_t least = std::numeric_limits<int64_t>::max();
  for (auto entry = choices_.lower_bound(head); entry != choices_.end(); ++entry) {
    const std::string& key = entry->first;
    if (!key.starts_with(head)) break;
    int64_t batch = 0;
    const char* end = key.data() + key.size();
    auto [rest, error] = std::from_chars(key.data() + head.size(), end, batch);
    if (error != std::errc() || std::string_view(rest, static_cast<size_t>(end - rest)) != tail) continue;
    const std::optional<ConvPath> path = known(key, candidates);
    if (!path || entry->second.borrowed || std::abs(batch - operation.batch) >= least) continue;
    least = std::abs(batch - operation.batch);
    nearest = path;
  }
  if (nearest) choices_.insert_or_assign(key_of(operation.text()), Choice{*nearest, false, true});
  return nearest;
}

ConvPath ConvChoices::choose(const ConvOperation& operation, const std::vector<ConvPath>& candidates,
                             const Runner& run) {
  YOKE_CHECK(!candidates.empty(), "no convolution path for {}", operation.text());
  std::lock_guard lock(mutex_);
  if (forced_) {
    bool possible = std::find(candidates.begin(), candidates.end(), *forced_) != candidates.end();
    return possible ? *forced_ : candidates.front();
  }
  const std::string key = key_of(operation.text());
  if (auto path = known(key, candidates)) return *path;
  if (candidates.size() == 1) return candidates.front();
  if (borrows_)
    if (auto path = borrow(operation, candidates)) return *path;
  if (file_.empty())
    return choices_.insert_or_assign(key, Choice{fastest(candidates, run, clock_)}).first->second.path;

  FileLock file_lock(file_.string() + ".lock");
  if (!file_lock.problem().empty()) warn_once_locked(file_lock.problem());
  merge_file_locked();
  if (auto path = known(key, candidates)) return *path;  // another process was first
  ConvPath path = fastest(candidates, run, clock_);
  choices_.insert_or_assign(key, Choice{path});
  try {
    write_file_atomically(file_, to_json_locked(/*borrowed=*/false).dump(1) + "\n");
  } catch (const ConfigError& error) {
    warn_once_locked(error.what());
  }
  return path;
}

nlohmann::json ConvChoices::to_json_locked(bool borrowed) const {
  nlohmann::json choices = nlohmann::json::object();
  for (const auto& [key, choice] : choices_)
    if (borrowed || !choice.borrowed) choices[key] = to_string(choice.path);
  return {{"version", 1}, {"choices", choices}};
}

nlohmann::json ConvChoices::to_json() const {
  std::lock_guard lock(mutex_);
  return to_json_locked(/*borrowed=*/true);
}

void ConvChoices::import_json(const nlohmann::json& document) {
  std::lock_guard lock(mutex_);
  merge_locked(document, /*imported=*/true, "imported convolution choices");
}

void ConvChoices::merge_locked(const nlohmann::json& document, bool imported, const std::string& where) {
  if (document.is_null()) return;
  auto found = document.is_object() ? document.find("choices") : document.end();
  bool version_1 = document.is_object() && document.contains("version") && document["version"] == 1;
  if (!version_1 || found == document.end() || !found->is_object()) {
    throw ConfigError("{}: expected {{\"version\": 1, \"choices\": {{…}}}}", where);
  }
  for (const auto& [key, value] : found->items()) {
    auto path = value.is_string() ? parse_conv_path(value.get<std::string>()) : std::nullopt;
    if (!path)
      throw ConfigError("{}: choice \"{}\" is {}; expected onednn, native, channels_last or direct", where,
                        key, value.dump());
    auto entry = choices_.find(key);
    bool keep = entry != choices_.end() && entry->second.imported && !imported;
    if (!keep) choices_.insert_or_assign(key, Choice{*path, imported});
  }
}

void ConvChoices::clear() {
  std::lock_guard lock(mutex_);
  forced_.reset();
  warned_ = borrows_ = false;
  file_.clear();
  choices_.clear();
}

}  // namespace yoke::compute
