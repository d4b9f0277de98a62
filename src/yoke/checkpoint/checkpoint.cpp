#include "yoke/checkpoint/checkpoint.h"

#include "yoke/base/log.h"
#include "yoke/checkpoint/format/commit.h"
#include "yoke/checkpoint/pieces.h"

namespace yoke::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr const char* kModel = "model";
constexpr const char* kOptimizer = "optimizer";
// Required by Hugging Face's loaders.
const std::map<std::string, std::string> kMetadata = {{"format", "pt"}};

std::vector<format::TensorView> views_of(const std::vector<NamedTensor>& tensors) {
  std::vector<format::TensorView> views;
  for (const auto& [name, tensor] : tensors) views.push_back(view_of(name, tensor));
  return views;
}

// No copy if a tensor is on the CPU and row-major.
std::vector<NamedTensor> on_host(const std::vector<NamedTensor>& tensors) {
  std::vector<NamedTensor> result;
  for (const auto& [name, tensor] : tensors) result.emplace_back(name, tensor.detach().cpu().contiguous());
  return result;
}

std::string describe(const std::vector<format::Verdict>& passed_over) {
  std::string text;
  for (const format::Verdict& v : passed_over) {
    text += fmt::format("{}{}: {}", text.empty() ? "" : "; ", v.path.filename().string(), v.problem);
  }
  return text;
}

}  // namespace

Loaded open(const fs::path& checkpoint) {
  format::Manifest manifest = format::read_manifest(checkpoint);
  Loaded loaded;
  loaded.step = manifest.step;
  loaded.path = checkpoint;
  loaded.state.model = join_pieces(load_files(checkpoint, manifest, kModel), {}, checkpoint.string());
  loaded.state.optimizer =
      join_pieces(load_files(checkpoint, manifest, kOptimizer), loaded.state.model, checkpoint.string());
  loaded.state.rest = std::move(manifest.state);
  return loaded;
}

Writer::Writer(fs::path dir, CheckpointOptions options, format::Failpoint failpoint, Team team)
    : dir_(std::move(dir)), options_(options), failpoint_(std::move(failpoint)), team_(std::move(team)) {}

Writer::~Writer() {
  try {
    finish_all();
  } catch (const std::exception& error) {
    log::error("{}", error.what());
  }
}

void Writer::reserve(const State& state) {
  finish_all();
  if (!options_.background) return;
  model_.reserve(state.model);
  optimizer_.reserve(state.optimizer);
}

void Writer::save(int64_t step, const State& state) {
  finish_all();
  newest_ = step;
  Parts parts = begin(state);
  if (!options_.background) {
    failure_ = write(step, parts, state.rest);
    if (failure_.empty()) tidy(step);
    return;
  }
  std::promise<std::string> safe;
  pending_ = safe.get_future();
  auto work = [this, step, parts, rest = state.rest](std::promise<std::string> done) {
    bool failed = false;
    try {
      std::string failure = write(step, parts, rest);
      failed = !failure.empty();
      done.set_value(std::move(failure));
    } catch (...) {
      done.set_exception(std::current_exception());
      return;
    }
    if (!failed) tidy(step);
  };
  thread_ = std::async(std::launch::async, std::move(work), std::move(safe));
  if (!parts.trouble) fill(state);
}

// In the background, writing starts while the copies are still being made.
Writer::Parts Writer::begin(const State& state) {
  Parts parts;
  try {
    if (options_.background) {
      parts.model = {model_.begin(state.model), [this](const void* end) { model_.wait_until_filled(end); }};
      parts.optimizer = {optimizer_.begin(state.optimizer),
                         [this](const void* end) { optimizer_.wait_until_filled(end); }};
    } else {
      parts.model = {on_host(state.model), nullptr};
      parts.optimizer = {on_host(state.optimizer), nullptr};
    }
  } catch (...) {
    parts.trouble = std::current_exception();
  }
  return parts;
}

void Writer::fill(const State& state) {
  try {
    model_.fill(state.model);
    optimizer_.fill(state.optimizer);
  } catch (...) {  // rethrown by the writing thread
    model_.give_up(std::current_exception());
    optimizer_.give_up(std::current_exception());
  }
}

void Writer::wait() {
  if (pending_.valid()) failure_ = pending_.get();
}

void Writer::confirm() {
  wait();
  if (failure_.empty()) return;
  throw CheckpointError("the newest state (step {}) could not be saved: {} {}", newest_, failure_,
                        last_good());
}

void Writer::finish_all() {
  wait();
  if (thread_.valid()) thread_.get();
}

// Failing to remove old checkpoints does not fail the save: it is tried again after the next one.
void Writer::tidy(int64_t step) {
  if (team_.rank != 0) return;
  try {
    format::prune(dir_, step, options_.keep, known_good_, failpoint_);
  } catch (const std::exception& error) {
    log::warn("after the checkpoint of step {}: {} The next save tries again.", step, error.what());
  }
}

std::string Writer::write(int64_t step, const Parts& parts, const nlohmann::json& rest) {
  std::string failure;
  try {
    team_.size > 1 ? write_together(step, parts, rest) : write_alone(step, parts, rest);
    return "";
  } catch (const Error& error) {
    if (error.code() == ExitCode::kPeerFailed) throw;
    failure = error.what();
  } catch (const std::exception& error) {
    failure = fmt::format("{}.", error.what());
  }
  // Logged immediately, not at the next save.
  if (team_.rank == 0)
    log::warn("saving the checkpoint of step {} failed: {} {} The run goes on; its next save tries again.",
              step, failure, last_good());
  return failure;
}

void Writer::write_alone(int64_t step, const Parts& parts, const nlohmann::json& rest) {
  if (parts.trouble) std::rethrow_exception(parts.trouble);
  format::Commit commit(dir_, step, failpoint_);
  commit.add(file_name(kModel, team_), views_of(parts.model.list), kMetadata, parts.model.ready);
  commit.add(file_name(kOptimizer, team_), views_of(parts.optimizer.list), kMetadata, parts.optimizer.ready);
  known_good_.insert(commit.commit(rest));
}

// Three barriers: the folder exists, all have written, it is committed. Every rank reaches each of them, and
// none passes one where another rank failed.
void Writer::write_together(int64_t step, const Parts& parts, const nlohmann::json& rest) {
  Meeting meeting(team_, step);
  std::optional<format::Commit> commit;
  meeting.after("folder", [&]() -> nlohmann::json {
    if (parts.trouble) std::rethrow_exception(parts.trouble);
    if (team_.rank == 0) commit.emplace(dir_, step, failpoint_);
    return nullptr;
  });
  std::vector<nlohmann::json> written = meeting.after("files", [&]() -> nlohmann::json {
    auto put = [&](const char* kind, const Tensors& tensors) {
      return format::write_part(dir_, step, file_name(kind, team_), views_of(tensors.list), kMetadata,
                                failpoint_, tensors.ready);
    };
    format::FileEntry model = put(kModel, parts.model);
    return describe_part({model, put(kOptimizer, parts.optimizer)}, parts.model.list);
  });
  meeting.after("commit", [&]() -> nlohmann::json {
    if (team_.rank != 0) return nullptr;
    for (const nlohmann::json& part : written)
      for (const format::FileEntry& file : files_of_part(part)) commit->adopt(file);
    commit->add_text("model.safetensors.index.json", index_of_parts(written));
    known_good_.insert(commit->commit(rest));
    return nullptr;
  });
}

std::string Writer::last_good() const {
  std::string kept = "No earlier checkpoint of this run exists.";
  try {
    for (const format::Verdict& v : format::list(dir_))
      if (v.ok) kept = fmt::format("The last good checkpoint is {}.", v.path.string());
  } catch (const std::exception&) {  // the folder is gone
  }
  return kept;
}

std::optional<Loaded> load_newest(const fs::path& dir) {
  std::optional<Loaded> loaded;
  format::Choice choice = format::newest_good(dir, [&](const format::Verdict& verdict) -> std::string {
    try {
      loaded = open(verdict.path);
      return "";
    } catch (const Error& error) {  // intact, but not written by this program
      return error.what();
    }
  });
  if (!loaded && !choice.passed_over.empty()) {
    throw CheckpointError(
        "{}: none of {} checkpoints is usable: {}. Start over with --resume never or another out.dir.",
        dir.string(), choice.passed_over.size(), describe(choice.passed_over));
  }
  if (loaded) loaded->passed_over = std::move(choice.passed_over);
  return loaded;
}

Loaded load(const fs::path& path) {
  auto loaded = load_newest(path);
  if (!loaded) {
    throw CheckpointError(
        "{}: no checkpoint there. Give a run folder, its checkpoints folder, or one checkpoint.",
        path.string());
  }
  return std::move(*loaded);
}

}  // namespace yoke::checkpoint
