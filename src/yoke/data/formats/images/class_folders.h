// Pictures sorted into classes by their folders, on disk or in tar archives.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "yoke/base/file.h"

namespace yoke::data {

struct PictureFile {
  std::string name;               // below the folder of the split, or in the archive
  int32_t label = 0;              // index of the class
  int32_t shard = -1;             // -1: a file of its own
  uint64_t offset = 0, size = 0;  // in the archive
};

// The pictures of one split, by class and name: the same on every rank. Thread-safe.
class ClassFolders {
 public:
  // Looks in `dir` for a folder of one of `names` ("train"; "val", "test") with a folder for each class or
  // with archives, or for archives whose names start so ("val-000.tar"). The class of an archive's entry is
  // the folder it lies in; without one, the archive's name in such a folder ("train/n01440764.tar"). Or, as
  // in Food-101, for the list meta/NAME.txt of pictures below images/, "apple_pie/1005649" for
  // images/apple_pie/1005649.jpg. Throws ConfigError: nothing found (names what was searched), no class, a
  // class without a picture, folders beside archives, a damaged archive, a list with another line.
  ClassFolders(const std::filesystem::path& dir, const std::vector<std::string>& names);

  const std::vector<std::string>& classes() const { return classes_; }
  const std::vector<PictureFile>& files() const { return files_; }
  // For messages: the file, or the archive and the entry.
  std::string shown(const PictureFile& file) const;
  // The bytes of a file, in `space` or in the mapped archive. Throws ConfigError: unreadable.
  std::string_view read(const PictureFile& file, std::string& space) const;

 private:
  void list_classes(const std::vector<std::filesystem::path>& folders);
  void list_shards(std::vector<std::filesystem::path> shards, bool named_by_class);
  void add_class(const std::string& name, std::vector<PictureFile> files);
  void list_named(const std::filesystem::path& list);

  std::filesystem::path root_;
  std::vector<std::string> classes_;
  std::vector<PictureFile> files_;
  std::vector<std::filesystem::path> shard_paths_;
  std::vector<std::unique_ptr<MappedFile>> shards_;
};

// Whether there is anything to read for `names`.
bool has_pictures(const std::filesystem::path& dir, const std::vector<std::string>& names);

// Throws ConfigError naming the classes that only one of the two has.
void check_same_classes(const ClassFolders& training, const ClassFolders& test);

}  // namespace yoke::data
