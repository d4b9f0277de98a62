#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>

#include "cli/doctor_checks.h"
#include "yoke/base/clock.h"
#include "yoke/base/error.h"
#include "yoke/base/json_text.h"
#include "yoke/base/text.h"
#include "yoke/base/units.h"
#include "yoke/cluster/launch_env.h"
#include "yoke/comm/modules/module.h"
#include "yoke/comm/run_ranks.h"

namespace yoke::cli {
namespace {

namespace fs = std::filesystem;

constexpr int kElements = 1 << 18;  // 1 MB
constexpr int kRounds = 5;

// Two threads sum 1 MB over `local`.
Check check_local() {
  try {
    double best = 1e9;
    bool right = true;
    comm::run_ranks(2, [&](comm::Communicator& comm) {
      for (int round = 0; round < kRounds; ++round) {
        std::vector<float> data(kElements, static_cast<float>(comm.rank() + 1));
        Stopwatch watch;
        comm.all_reduce(data).wait();
        if (comm.rank() != 0) continue;
        best = std::min(best, watch.seconds());
        right = right && data.front() == 3 && data.back() == 3;
      }
    });
    return {"backend local", right, fmt::format("2 ranks summed 1 MB in {}", format_duration(best)),
            right ? "" : "the sum is wrong: please report it"};
  } catch (const Error& error) {
    return {"backend local", false, error.what(), "ranks in one process cannot exchange data"};
  }
}

// What the program prints on stdout. The time limit is for a broken machine: usually it takes a fraction of a
// second.
std::string output_of(const std::string& command) {
  std::FILE* pipe = ::popen(("timeout 20 " + command + " 2>/dev/null").c_str(), "r");
  if (pipe == nullptr) return "";
  std::string text;
  std::array<char, 4096> block{};
  for (size_t got = 0; (got = std::fread(block.data(), 1, block.size(), pipe)) > 0;)
    text.append(block.data(), got);
  ::pclose(pipe);
  return text;
}

// Two processes sum 1 MB, started as a user would.
Check check_processes(const std::string& backend, const std::string& hint) {
  const std::string name = "backend " + backend;
  fs::path yoke = fs::read_symlink("/proc/self/exe").parent_path() / "yoke";
  std::string printed = output_of(fmt::format(
      "'{}' bench collectives --nproc 2 --backend {} --bytes 1M --iterations {} --timeout 10 --json -q",
      yoke.string(), backend, kRounds));
  try {
    nlohmann::json document = parse_json(printed, "its result");
    if (document.contains("error")) return {name, false, document.at("error"), hint};
    const nlohmann::json& row = document.at("results").at(0);
    bool right = row.at("correct");
    return {name, right,
            fmt::format("2 ranks summed 1 MB in {}", format_duration(row.at("seconds").at("median"))),
            right ? "" : "the sum is wrong: please report it"};
  } catch (const std::exception&) {
    return {name, false, "2 ranks could not exchange data",
            fmt::format("{}. See: yoke bench collectives --nproc 2 --backend {}", hint, backend)};
  }
}

bool on_path(const std::string& program) {
  for (const std::string& folder : split(cluster::environment_variable("PATH").value_or(""), ':')) {
    std::error_code ignored;
    if (fs::exists(fs::path(folder) / program, ignored)) return true;
  }
  return false;
}

// A missing module is normal; one that cannot be loaded is not.
Check check_module(const std::string& name, const std::string& file, const std::string& hint,
                   const std::string& launcher) {
  if (comm::find_module(file).empty()) return {name, true, "not built", hint, true};
  try {
    std::string version = comm::module_version(file, hint);
    version = version.substr(0, version.find_first_of("\n,"));  // MPICH prints a whole page
    std::replace(version.begin(), version.end(), '\t', ' ');
    bool starts = launcher.empty() || on_path(launcher) || on_path("mpirun");
    return {name, true, version, starts ? "" : fmt::format("no mpirun on the path: install {}", hint)};
  } catch (const ConfigError& error) {
    return {name, false, "broken", error.what()};
  }
}

}  // namespace

std::vector<Check> backend_checks() {
  return {check_local(),
          check_processes("shm", "see /dev/shm above"),
          check_processes("tcp", "the loopback interface must be up and not filtered"),
          check_module("mpi (Open MPI)", "libyoke_mpi_openmpi.so",
                       "for Open MPI: apt install libopenmpi-dev openmpi-bin, then make build "
                       "CMAKE_FLAGS=-DYOKE_MPI=ON",
                       "mpirun.openmpi"),
          check_module("mpi (MPICH)", "libyoke_mpi_mpich.so",
                       "for MPICH: apt install libmpich-dev mpich, then make build CMAKE_FLAGS=-DYOKE_MPI=ON",
                       "mpirun.mpich"),
          check_module("nccl", "libyoke_nccl.so",
                       "for several GPUs: CUDA toolkit and libnccl-dev, then make build PRESET=cuda", "")};
}

}  // namespace yoke::cli
