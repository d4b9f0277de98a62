#include "yoke/checkpoint/format/commit.h"

#include "yoke/base/error.h"
#include "yoke/base/fault.h"
#include "yoke/checkpoint/format/digest.h"
#include "yoke/checkpoint/format/folder.h"

namespace yoke::checkpoint::format {
namespace {

namespace fs = std::filesystem;

// True if it did not exist.
bool make_folder(const fs::path& path) {
  std::error_code error;
  bool made = fs::create_directories(path, error);
  if (error) fail_on_disk("cannot create the folder", path, error.value());
  return made;
}

void remove_folder(const fs::path& path) {
  std::error_code error;
  fs::remove_all(path, error);
  if (error) fail_on_disk("cannot remove", path, error.value());
}

void move_folder(const fs::path& from, const fs::path& to) {
  std::error_code error;
  fs::rename(from, to, error);
  if (error) fail_on_disk(fmt::format("cannot rename to {}", to.filename().string()), from, error.value());
}

fs::path unfinished(const fs::path& dir, int64_t step) {
  return dir / fmt::format("step-{}.tmp", step);
}

}  // namespace

FileEntry write_part(const fs::path& dir, int64_t step, const std::string& file,
                     std::vector<TensorView> tensors, const std::map<std::string, std::string>& metadata,
                     const Failpoint& failpoint, const Readiness& ready) {
  WrittenFile written =
      write_safetensors(unfinished(dir, step) / file, std::move(tensors), metadata, failpoint, ready);
  return {file, written.bytes, written.digest};
}

Commit::Commit(fs::path dir, int64_t step, Failpoint failpoint)
    : dir_(std::move(dir)), failpoint_(std::move(failpoint)) {
  YOKE_CHECK(step >= 0, "checkpoint of step {}", step);
  manifest_.step = step;
  final_ = dir_ / fmt::format("step-{}", step);
  temporary_ = unfinished(dir_, step);
  if (make_folder(dir_)) sync_directory(fs::absolute(dir_).lexically_normal().parent_path());
  remove_folder(temporary_);
  point("folder: begin");
  make_folder(temporary_);
}

Commit::~Commit() {
  if (committed_) return;
  std::error_code ignored;
  fs::remove_all(temporary_, ignored);
}

void Commit::add(const std::string& file, std::vector<TensorView> tensors,
                 const std::map<std::string, std::string>& metadata, const Readiness& ready) {
  WrittenFile written = write_safetensors(temporary_ / file, std::move(tensors), metadata, failpoint_, ready);
  manifest_.files.push_back({file, written.bytes, written.digest});
}

void Commit::adopt(const FileEntry& file) {
  std::error_code error;
  uintmax_t bytes = fs::file_size(temporary_ / file.name, error);
  if (error || bytes != file.bytes)
    throw ConfigError(
        "{}: another rank has written {} bytes there, but this rank sees {}. All ranks must share out.dir: "
        "put it on a shared file system.",
        (temporary_ / file.name).string(), file.bytes,
        error ? std::string("none") : fmt::format("{}", bytes));
  manifest_.files.push_back(file);
}

void Commit::add_text(const std::string& file, const std::string& text) {
  write_text(file.c_str(), text);
  manifest_.files.push_back({file, text.size(), digest_of(text)});
}

fs::path Commit::commit(nlohmann::json state) {
  manifest_.state = std::move(state);
  std::string problem = validate(manifest_);
  YOKE_CHECK(problem.empty(), "manifest: {}", problem);
  std::string text = to_json_text(manifest_);
  write_text(kManifestName, text);
  // The directory entries must be on disk before the mark that says so.
  sync_directory(temporary_);
  point("folder: files synced");
  if (fault::at(fault::Point::kCheckpointCommit) == fault::Effect::kError)
    fail_on_disk("cannot commit (YOKE_FAULT)", temporary_, EIO);
  write_text(kCommittedName, digest_of(text) + "\n");
  sync_directory(temporary_);
  point("folder: mark synced");
  take_name();
  write_file_atomically(dir_ / "latest", final_.filename().string() + "\n");
  point("latest: replaced");
  return final_;
}

void Commit::write_text(const char* name, const std::string& text) {
  DurableFile file(temporary_ / name, 0, failpoint_);
  file.write(text.data(), text.size());
  file.sync();
}

void Commit::take_name() {
  fs::path replaced = final_;
  replaced += ".replaced";
  bool again = fs::exists(final_);
  if (again && fs::exists(replaced)) {
    // Left by a crash. A good one of the two old checkpoints must stay until the new one has its name.
    bool keep_replaced = !verify_one(final_).ok;
    remove_folder(keep_replaced ? final_ : replaced);
    again = !keep_replaced;
    point("folder: leftover removed");
  }
  if (again) {
    move_folder(final_, replaced);
    point("folder: old one stepped aside");
  }
  move_folder(temporary_, final_);
  committed_ = true;
  point("folder: renamed");
  sync_directory(dir_);
  point("folder: name synced");
  remove_folder(replaced);
}

void Commit::point(const char* what) const {
  if (failpoint_) failpoint_(what);
}

}  // namespace yoke::checkpoint::format
