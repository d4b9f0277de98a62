// Optional backends as shared libraries, loaded on demand: programs without MPI and NCCL neither link nor
// load them, and MPI libraries with different ABIs can be installed side by side.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "yoke/comm/backend.h"

namespace yoke::comm {

// ABI check between program and module: sizes of the types passed between them, and the compiler version.
inline std::string module_stamp(size_t setup_bytes) {
  return fmt::format("{}-{}-{}-{}-{}", sizeof(Operation), sizeof(Transfer), sizeof(Counters), setup_bytes,
                     __VERSION__);
}

// Folders searched for modules: beside the program, then the library folder of its installation. The dynamic
// linker's own search path (LD_LIBRARY_PATH, run path) comes last.
std::vector<std::filesystem::path> module_folders();

// Path of `file`: in `folder` if given, else in the first of module_folders() that has it; empty if not
// found.
std::filesystem::path find_module(const std::string& file, const std::string& folder = "");

// Loads the module and returns the address of its function `entry`. It is never unloaded. Throws ConfigError:
// not found (with `hint`, how to get it), not loadable (with the loader's message), built for another version
// (its yoke_module_stamp() differs from `stamp`).
void* open_module(const std::string& file, const std::string& folder, const char* entry,
                  const std::string& stamp, const std::string& hint);

// Version of the module's library: "Open MPI v4.1.4", "NCCL 2.27.5". Throws ConfigError as open_module().
std::string module_version(const std::string& file, const std::string& hint, const std::string& folder = "");

}  // namespace yoke::comm
