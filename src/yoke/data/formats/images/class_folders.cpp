#include "yoke/data/formats/images/class_folders.h"

#include <algorithm>
#include <iterator>
#include <map>

#include "yoke/base/error.h"
#include "yoke/base/text.h"
#include "yoke/data/formats/images/decode.h"
#include "yoke/data/formats/images/tar.h"

namespace yoke::data {
namespace fs = std::filesystem;
namespace {

constexpr int64_t kMostBytes = int64_t{1} << 28;  // of one picture file

bool is_hidden(const fs::path& path) {
  return path.filename().string().starts_with('.');
}

// Sorted, so that every rank sees the same order.
std::vector<fs::path> children(const fs::path& folder) {
  std::vector<fs::path> found;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error))
    if (!is_hidden(at->path())) found.push_back(at->path());
  if (error) throw ConfigError("data.dir: {} cannot be listed: {}.", folder.string(), error.message());
  std::sort(found.begin(), found.end());
  return found;
}

bool is_folder(const fs::path& path) {
  std::error_code ignored;  // unreadable counts as missing
  return fs::is_directory(path, ignored);
}

bool is_archive(const fs::path& path) {
  std::error_code ignored;
  return path.extension() == ".tar" && fs::is_regular_file(path, ignored);
}

// Archives "val.tar", "val-000.tar", "val_000.tar".
std::vector<fs::path> archives_named(const fs::path& dir, const std::string& name) {
  std::vector<fs::path> found;
  if (!is_folder(dir)) return found;
  for (const fs::path& path : children(dir)) {
    const std::string stem = path.stem().string();
    const bool named =
        stem.starts_with(name) && (stem.size() == name.size() || !std::isalpha(stem[name.size()]));
    if (named && is_archive(path)) found.push_back(path);
  }
  return found;
}

void list_pictures(const fs::path& folder, const fs::path& root, std::vector<std::string>& names) {
  std::error_code error;
  for (fs::recursive_directory_iterator at(folder, error), end; !error && at != end; at.increment(error))
    if (!is_hidden(at->path()) && is_picture_name(at->path().string()) && !at->is_directory(error))
      names.push_back(at->path().lexically_relative(root).string());
  if (error) throw ConfigError("data.dir: {} cannot be listed: {}.", folder.string(), error.message());
  std::sort(names.begin(), names.end());
}

std::string class_of(const std::string& entry) {
  const fs::path parent = fs::path(entry).parent_path();
  return parent.filename().string();
}

// The list of a split, where one file of pictures serves several (Food-101).
fs::path list_of(const fs::path& dir, const std::string& name) {
  return dir / "meta" / (name + ".txt");
}

bool has_list(const fs::path& dir, const std::string& name) {
  std::error_code ignored;
  return is_folder(dir / "images") && fs::is_regular_file(list_of(dir, name), ignored);
}

[[noreturn]] void throw_none(const fs::path& dir, const std::vector<std::string>& names) {
  std::vector<std::string> looked;
  for (const std::string& name : names) {
    looked.push_back((dir / name).string());
    looked.push_back((dir / (name + "*.tar")).string());
    looked.push_back(list_of(dir, name).string());
  }
  throw ConfigError(
      "data.name = images: found none of {}. Set data.dir to the folder that has train/ and val/, each with "
      "a "
      "folder for every class or with .tar files{}.",
      join(looked, ", "),
      names.front() == "train" ? "" : "; to train without a test set, set train.evaluate = false");
}

}  // namespace

ClassFolders::ClassFolders(const fs::path& dir, const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    root_ = dir / name;
    if (is_folder(root_)) {
      std::vector<fs::path> folders, archives;
      for (const fs::path& path : children(root_)) {
        if (is_folder(path)) folders.push_back(path);
        if (is_archive(path)) archives.push_back(path);
      }
      if (folders.empty() && archives.empty())
        throw ConfigError("data.dir: {} has no classes: expected a folder for each class, or .tar files.",
                          root_.string());
      if (!folders.empty() && !archives.empty())
        throw ConfigError("data.dir: {} has class folders ({}) beside archives ({}). Keep one kind.",
                          root_.string(), folders.front().filename().string(),
                          archives.front().filename().string());
      if (folders.empty())
        list_shards(std::move(archives), true);
      else
        list_classes(folders);
      return;
    }
    if (auto archives = archives_named(dir, name); !archives.empty()) {
      list_shards(std::move(archives), false);
      return;
    }
    if (has_list(dir, name)) {
      root_ = dir / "images";
      list_named(list_of(dir, name));
      return;
    }
  }
  throw_none(dir, names);
}

void ClassFolders::list_named(const fs::path& list) {
  std::map<std::string, std::vector<PictureFile>> by_class;
  size_t number = 0;
  for (const std::string& line : split(read_file(list), '\n')) {
    ++number;
    if (line.empty()) continue;
    const size_t slash = line.find('/');
    if (slash == 0 || slash == std::string::npos || slash + 1 == line.size() ||
        line.find("..") != std::string::npos)
      throw ConfigError("{}:{}: \"{}\": expected a class and a picture, like apple_pie/1005649.",
                        list.string(), number, line);
    by_class[line.substr(0, slash)].push_back({is_picture_name(line) ? line : line + ".jpg", 0, -1, 0, 0});
  }
  if (by_class.empty()) throw ConfigError("{}: it names no picture.", list.string());
  for (auto& [name, files] : by_class) add_class(name, std::move(files));
}

void ClassFolders::add_class(const std::string& name, std::vector<PictureFile> files) {
  std::ranges::sort(files, {}, &PictureFile::name);
  for (PictureFile& file : files) {
    file.label = static_cast<int32_t>(classes_.size());
    files_.push_back(std::move(file));
  }
  classes_.push_back(name);
}

void ClassFolders::list_classes(const std::vector<fs::path>& folders) {
  for (const fs::path& folder : folders) {
    std::vector<std::string> names;
    list_pictures(folder, root_, names);
    if (names.empty())
      throw ConfigError("data.dir: the class folder {} has no .jpg, .jpeg or .png file. Fill or remove it.",
                        folder.string());
    for (std::string& name : names)
      files_.push_back({std::move(name), static_cast<int32_t>(classes_.size()), -1, 0, 0});
    classes_.push_back(folder.filename().string());
  }
}

void ClassFolders::list_shards(std::vector<fs::path> shards, bool named_by_class) {
  shard_paths_ = std::move(shards);
  std::map<std::string, std::vector<PictureFile>> by_class;
  for (const fs::path& path : shard_paths_) {
    const auto shard = static_cast<int32_t>(shards_.size());
    shards_.push_back(std::make_unique<MappedFile>(path));
    for (TarEntry& entry : index_tar(shards_.back()->view(), path.string())) {
      if (!is_picture_name(entry.name) || is_hidden(entry.name)) continue;
      std::string name = class_of(entry.name);
      if (name.empty() && named_by_class) name = path.stem().string();
      if (name.empty())
        throw ConfigError("{}: the entry \"{}\" lies in no folder; its folder would be its class.",
                          path.string(), entry.name);
      by_class[name].push_back({std::move(entry.name), 0, shard, entry.offset, entry.size});
    }
  }
  if (by_class.empty())
    throw ConfigError("data.dir: {} has no classes: no .jpg, .jpeg or .png file in its archives.",
                      root_.string());
  for (auto& [name, files] : by_class) {
    for (PictureFile& file : files) file.label = static_cast<int32_t>(classes_.size());
    std::move(files.begin(), files.end(), std::back_inserter(files_));
    classes_.push_back(name);
  }
}

std::string ClassFolders::shown(const PictureFile& file) const {
  if (file.shard < 0) return (root_ / file.name).string();
  return shard_paths_[static_cast<size_t>(file.shard)].string() + ": " + file.name;
}

std::string_view ClassFolders::read(const PictureFile& file, std::string& space) const {
  if (file.shard >= 0) return shards_[static_cast<size_t>(file.shard)]->view().substr(file.offset, file.size);
  space = read_file(root_ / file.name, kMostBytes);
  return space;
}

bool has_pictures(const fs::path& dir, const std::vector<std::string>& names) {
  return std::any_of(names.begin(), names.end(), [&](const std::string& name) {
    return is_folder(dir / name) || !archives_named(dir, name).empty() || has_list(dir, name);
  });
}

void check_same_classes(const ClassFolders& training, const ClassFolders& test) {
  auto only_in = [](const ClassFolders& one, const ClassFolders& other) {
    std::vector<std::string> names;
    std::set_difference(one.classes().begin(), one.classes().end(), other.classes().begin(),
                        other.classes().end(), std::back_inserter(names));
    constexpr size_t kShown = 5;
    const size_t more = names.size() > kShown ? names.size() - kShown : 0;
    names.resize(names.size() - more);
    return join(names, ", ") + (more > 0 ? fmt::format(" and {} more", more) : "");
  };
  const std::string missing = only_in(training, test), added = only_in(test, training);
  if (missing.empty() && added.empty()) return;
  throw ConfigError(
      "data.dir: the classes of the training and the test set differ.{}{} Both need the same folders.",
      missing.empty() ? "" : " Only in the training set: " + missing + ".",
      added.empty() ? "" : " Only in the test set: " + added + ".");
}

}  // namespace yoke::data
