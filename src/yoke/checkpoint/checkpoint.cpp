#include "yoke/checkpoint/checkpoint.h"

#include "yoke/base/log.h"
#include "yoke/checkpoint/format/commit.h"
#include "yoke/checkpoint/pieces.h"

namespace yoke::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr const char* kModel = "model";
constexpr const char* kOptimizer = "optimizer";
// Hugging Face's loaders ask for this entry.
const std::map<std::string, std::string> kMetadata = {{"format", "pt"}};

std::vector<format::TensorView> views_of(const std::vector<NamedTensor>& tensors) {
  std::vector<format::TensorView> views;
  for (const auto& [name, tensor] : tensors) views.push_back(view_of(name, tensor));
  return views;
}

// Without a copy where a tensor is on the CPU and row-major.
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
  loaded.state.model = load_files(checkpoint, manifest, kModel);
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
  if (!options_.background) {
    write(step, {on_host(state.model), nullptr}, {on_host(state.optimizer), nullptr}, state.rest);
    return tidy(step);
  }
  // Written while the copies are still being made.
  Tensors model{model_.begin(state.model), [this](const void* end) { model_.wait_until_filled(end); }};
  Tensors optimizer{optimizer_.begin(state.optimizer),
                    [this](const void* end) { optimizer_.wait_until_filled(end); }};
  std::promise<void> safe;
  pending_ = safe.get_future();
  auto work = [this, step, model, optimizer, rest = state.rest](std::promise<void> done) {
    try {
      write(step, model, optimizer, rest);
      done.set_value();
    } catch (...) {
      done.set_exception(std::current_exception());
      return;
    }
    tidy(step);
  };
  thread_ = std::async(std::launch::async, std::move(work), std::move(safe));
  copy(state);
}

void Writer::copy(const State& state) {
  try {
    model_.fill(state.model);
    optimizer_.fill(state.optimizer);
  } catch (...) {
    model_.give_up(std::current_exception());
    optimizer_.give_up(std::current_exception());
    throw;
  }
}

void Writer::wait() {
  if (pending_.valid()) pending_.get();
}

void Writer::finish_all() {
  wait();
  if (thread_.valid()) thread_.get();
}

void Writer::tidy(int64_t step) {
  if (team_.rank != 0) return;
  try {
    format::prune(dir_, step, options_.keep, known_good_, failpoint_);
  } catch (const Error& error) {
    explain_and_throw(error.code(), step, error.what());
  }
}

void Writer::write(int64_t step, const Tensors& model, const Tensors& optimizer, const nlohmann::json& rest) {
  try {
    if (team_.size > 1) return write_together(step, model, optimizer, rest);
    format::Commit commit(dir_, step, failpoint_);
    commit.add(file_name(kModel, team_), views_of(model.list), kMetadata, model.ready);
    commit.add(file_name(kOptimizer, team_), views_of(optimizer.list), kMetadata, optimizer.ready);
    known_good_.insert(commit.commit(rest));
  } catch (const Error& error) {
    explain_and_throw(error.code(), step, error.what());
  } catch (const std::exception& error) {
    explain_and_throw(ExitCode::kInternal, step, error.what());
  }
}

// Three meetings: the folder is there, all have written, it is committed. Each is reached by all ranks, and
// none passes one where somebody failed.
void Writer::write_together(int64_t step, const Tensors& model, const Tensors& optimizer,
                            const nlohmann::json& rest) {
  Meeting meeting(team_, step);
  std::optional<format::Commit> commit;
  meeting.after("folder", [&]() -> nlohmann::json {
    if (team_.rank == 0) commit.emplace(dir_, step, failpoint_);
    return nullptr;
  });
  std::vector<nlohmann::json> parts = meeting.after("files", [&]() -> nlohmann::json {
    format::FileEntry one = format::write_part(dir_, step, file_name(kModel, team_), views_of(model.list),
                                               kMetadata, failpoint_, model.ready);
    format::FileEntry two =
        format::write_part(dir_, step, file_name(kOptimizer, team_), views_of(optimizer.list), kMetadata,
                           failpoint_, optimizer.ready);
    return describe_part({one, two}, model.list);
  });
  meeting.after("commit", [&]() -> nlohmann::json {
    if (team_.rank != 0) return nullptr;
    for (const nlohmann::json& part : parts)
      for (const format::FileEntry& file : files_of_part(part)) commit->adopt(file);
    commit->add_text("model.safetensors.index.json", index_of_parts(parts));
    known_good_.insert(commit->commit(rest));
    return nullptr;
  });
}

void Writer::explain_and_throw(ExitCode code, int64_t step, const std::string& text) const {
  std::string kept = "No earlier checkpoint of this run exists.";
  std::error_code ignored;
  if (fs::is_directory(dir_, ignored)) {
    for (const format::Verdict& v : format::list(dir_))
      if (v.ok) kept = fmt::format("The last good checkpoint is {}.", v.path.string());
  }
  std::string whole = fmt::format("saving the checkpoint of step {} failed: {} {}", step, text, kept);
  if (code == ExitCode::kUsage) throw ConfigError("{}", whole);
  throw Error(code, whole);
}

std::optional<Loaded> load_newest(const fs::path& dir) {
  std::optional<Loaded> loaded;
  format::Choice choice = format::newest_good(dir, [&](const format::Verdict& verdict) -> std::string {
    try {
      loaded = open(verdict.path);
      return "";
    } catch (const Error& error) {  // whole, but not what this program writes
      return error.what();
    }
  });
  if (!loaded && !choice.passed_over.empty()) {
    throw CheckpointError(
        "{}: none of {} checkpoints can be used: {}. Start anew with --resume never or another out.dir.",
        dir.string(), choice.passed_over.size(), describe(choice.passed_over));
  }
  if (loaded) loaded->passed_over = std::move(choice.passed_over);
  return loaded;
}

Loaded load(const fs::path& path) {
  auto loaded = load_newest(path);
  if (!loaded) {
    throw CheckpointError(
        "{}: no checkpoint there. Name a run's folder, its checkpoints folder, or one checkpoint.",
        path.string());
  }
  return std::move(*loaded);
}

}  // namespace yoke::checkpoint
