// Parts that are separate libraries, loaded when they are asked for: a program that uses no MPI and no NCCL
// neither links nor loads them, and two MPIs of different binary interfaces can stand side by side.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "yoke/comm/backend.h"

namespace yoke::comm {

// The same in the program and in a module that fits it: sizes of what passes between them and the compiler.
inline std::string module_stamp(size_t setup_bytes) {
  return fmt::format("{}-{}-{}-{}-{}", sizeof(Operation), sizeof(Transfer), sizeof(Counters), setup_bytes,
                     __VERSION__);
}

// Where modules are looked for: beside the program, in the library folder of its installation. The linker's
// own search path (LD_LIBRARY_PATH, run path) comes after these.
std::vector<std::filesystem::path> module_folders();

// Where `file` lies: in `folder` when given, else in the first of module_folders() that has it; empty when
// none.
std::filesystem::path find_module(const std::string& file, const std::string& folder = "");

// Loads the module and gives the address of its function `entry`. Never unloaded.
// Throws ConfigError: not found (with `hint`, which says what brings it), cannot be loaded (with the loader's
// words), belongs to another build (its yoke_module_stamp() differs from `stamp`).
void* open_module(const std::string& file, const std::string& folder, const char* entry,
                  const std::string& stamp, const std::string& hint);

// What the module's library calls itself: "Open MPI v4.1.4", "NCCL 2.27.5". Throws ConfigError: not found
// (with `hint`), cannot be loaded, another build's.
std::string module_version(const std::string& file, const std::string& hint, const std::string& folder = "");

}  // namespace yoke::comm
