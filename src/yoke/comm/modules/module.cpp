#include "yoke/comm/modules/module.h"

#include <dlfcn.h>

#include "yoke/base/error.h"

namespace yoke::comm {
namespace {

namespace fs = std::filesystem;

fs::path program_folder() {
  std::error_code error;
  fs::path program = fs::read_symlink("/proc/self/exe", error);
  return error ? fs::path() : program.parent_path();
}

std::string searched(const std::string& folder) {
  if (!folder.empty()) return folder;
  std::string text;
  for (const fs::path& path : module_folders()) text += path.string() + ", ";
  return text + "the linker's search path";
}

}  // namespace

std::vector<fs::path> module_folders() {
  fs::path here = program_folder();
  if (here.empty()) return {};
  return {here, (here / YOKE_MODULE_FOLDER).lexically_normal()};
}

fs::path find_module(const std::string& file, const std::string& folder) {
  std::vector<fs::path> folders = folder.empty() ? module_folders() : std::vector<fs::path>{folder};
  for (const fs::path& path : folders) {
    std::error_code error;
    if (fs::is_regular_file(path / file, error)) return path / file;
  }
  return {};
}

void* open_module(const std::string& file, const std::string& folder, const char* entry,
                  const std::string& stamp, const std::string& hint) {
  fs::path path = find_module(file, folder);
  bool found = !path.empty();
  if (!found && !folder.empty()) throw ConfigError("{} is not in {}. {}", file, folder, hint);
  // RTLD_GLOBAL: plugins of an MPI look up its symbols in the global scope.
  void* handle = dlopen(found ? path.c_str() : file.c_str(), RTLD_NOW | RTLD_GLOBAL | RTLD_NODELETE);
  if (handle == nullptr) {
    std::string why = dlerror();
    if (!found) throw ConfigError("{} was not found (searched {}). {}", file, searched(folder), hint);
    throw ConfigError("{} cannot be loaded: {}. {}", path.string(), why, hint);
  }
  auto its_stamp = reinterpret_cast<const char* (*)()>(dlsym(handle, "yoke_module_stamp"));
  void* function = dlsym(handle, entry);
  if (its_stamp == nullptr || function == nullptr || its_stamp() != stamp)
    throw ConfigError(
        "{} is from a different build of yoke than this program. Build and install both together.",
        found ? path.string() : file);
  return function;
}

std::string module_version(const std::string& file, const std::string& hint, const std::string& folder) {
  fs::path path = find_module(file, folder);
  if (path.empty()) throw ConfigError("{} was not found. {}", file, hint);
  // RTLD_LOCAL: two MPI libraries in one process must not see each other's symbols.
  void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (handle == nullptr) throw ConfigError("{} cannot be loaded: {}. {}", path.string(), dlerror(), hint);
  auto version = reinterpret_cast<const char* (*)()>(dlsym(handle, "yoke_module_version"));
  if (version == nullptr)
    throw ConfigError("{} is from a different build of yoke. Build and install both together.",
                      path.string());
  return version();
}

}  // namespace yoke::comm
