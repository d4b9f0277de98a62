#include "yoke/comm/mpi/mpi.h"

#include "yoke/comm/modules/module.h"

namespace yoke::comm {
namespace {

struct Kind {
  const char* launcher;
  const char* module;
  const char* package;
};

constexpr Kind kKinds[] = {
    {"openmpi", "libyoke_mpi_openmpi.so", "libopenmpi-dev"},
    {"mpich", "libyoke_mpi_mpich.so", "libmpich-dev"},
};

const Kind& choose(const MpiSetup& setup) {
  const Kind* only = nullptr;
  int there = 0;
  for (const Kind& kind : kKinds) {
    if (setup.launcher == kind.launcher) return kind;
    if (find_module(kind.module, setup.folder).empty()) continue;
    only = &kind;
    there++;
  }
  if (there == 1) return *only;
  if (there == 0)
    throw ConfigError(
        "backend mpi: this build has no MPI module. Install libopenmpi-dev or libmpich-dev and configure "
        "again with "
        "-DYOKE_MPI=ON.");
  throw ConfigError(
      "backend mpi: launcher '{}' does not show whether this job uses Open MPI or MPICH, and there are "
      "modules for both. Start it with mpirun of one of them, or remove one module.",
      setup.launcher);
}

}  // namespace

std::unique_ptr<Backend> make_mpi_backend(const MpiSetup& setup) {
  const Kind& kind = choose(setup);
  std::string hint = fmt::format("Install {} and configure again with -DYOKE_MPI=ON.", kind.package);
  void* entry =
      open_module(kind.module, setup.folder, "yoke_mpi_backend", module_stamp(sizeof(MpiSetup)), hint);
  return std::unique_ptr<Backend>(reinterpret_cast<Backend* (*)(const MpiSetup*)>(entry)(&setup));
}

}  // namespace yoke::comm
