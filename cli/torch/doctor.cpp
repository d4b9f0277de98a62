// yoke doctor: what this machine has, what it lacks, and how to get it.
#include <ATen/Parallel.h>
#include <fmt/core.h>
#include <sys/statvfs.h>
#include <torch/version.h>

#include <filesystem>
#include <thread>

#include "cli/output.h"
#include "cli/torch/commands.h"
#include "cli/version.h"
#include "yoke/base/error.h"
#include "yoke/base/units.h"
#include "yoke/cluster/launch_env.h"
#include "yoke/compute/device.h"
#include "yoke/compute/precision.h"
#include "yoke/data/dataset.h"
#include "yoke/engine/machine_speed.h"

namespace yoke::cli {
namespace {

struct Check {
  std::string name;
  bool ok = true;
  std::string value;
  std::string hint;
};

// A reference BLAS reaches about 1-3 GFLOP/s a core, a good one ten times that.
constexpr double kSlowMatmulFlopsPerThread = 8e9;
constexpr double kSlowConvolutionFlopsPerThread = 4e9;
constexpr double kLittleDiskBytes = 2e9;
constexpr double kLittleSharedMemoryBytes = 64e6;

Check check_libtorch() {
  return {"libtorch", true,
          fmt::format("{} ({} capability, MKL {}, oneDNN {})", TORCH_VERSION, at::get_cpu_capability(),
                      at::hasMKL() ? "yes" : "no", at::hasMKLDNN() ? "yes" : "no"),
          ""};
}

Check check_threads() {
  return {"threads", true,
          fmt::format("{} used, {} cores", at::get_num_threads(), std::thread::hardware_concurrency()), ""};
}

Check check_speed(const std::string& name, double flops, double slow_per_thread) {
  bool slow = flops < slow_per_thread * at::get_num_threads();
  return {name, !slow, fmt::format("{:.1f} GFLOP/s", flops / 1e9),
          slow ? "this LibTorch computes slowly (a reference BLAS, or a busy machine). Use the PyPI wheel: "
                 "tools/setup"
               : ""};
}

Check check_cuda() {
  try {
    torch::Device device = compute::resolve_device("cuda");
    return {"cuda", true, compute::device_name(device), ""};
  } catch (const ConfigError& error) {
    // Absent is normal: a machine without a GPU is not ill.
    return {"cuda", true, "none", error.what()};
  }
}

Check check_space(const std::string& name, const std::filesystem::path& path, double least) {
  struct statvfs info {};
  if (::statvfs(path.c_str(), &info) != 0) return {name, false, path.string(), "cannot be read"};
  double free = static_cast<double>(info.f_bavail) * static_cast<double>(info.f_frsize);
  bool little = free < least;
  return {name, !little, fmt::format("{} free in {}", format_bytes(free), path.string()),
          little ? "free some space: checkpoints and shared-memory communication need it" : ""};
}

Check check_data() {
  data::DataOptions options;
  options.name = "fashion_mnist";
  try {
    auto dataset = data::open(options, data::Split::kTrain, {SampleKind::kImage, {1, 28, 28}, 10}, 1);
    return {"fashion_mnist", true,
            fmt::format("{} training images", format_count(static_cast<double>(dataset->size()))), ""};
  } catch (const ConfigError& error) {
    return {"fashion_mnist", false, "missing", error.what()};
  }
}

Check check_backends() {
  return {"backends", true, "one device (no communication backend is built yet)", ""};
}

}  // namespace

int run_doctor(const CommandLine& line) {
  if (line.list_faults) return list_faults(line);
  compute::set_threads(0);
  std::vector<Check> checks = {
      {"yoke", true, kVersion, ""},
      check_libtorch(),
      check_threads(),
      check_speed("matrix multiply", engine::matmul_flops(torch::kCPU, Precision::kFp32),
                  kSlowMatmulFlopsPerThread),
      check_speed("convolution", engine::convolution_flops(torch::kCPU, Precision::kFp32),
                  kSlowConvolutionFlopsPerThread),
      check_cuda(),
      check_space("disk", ".", kLittleDiskBytes),
      check_space("shared memory", "/dev/shm", kLittleSharedMemoryBytes),
      check_backends(),
      check_data(),
  };
  bool ok = true;
  nlohmann::json rows = nlohmann::json::array();
  for (const Check& check : checks) {
    ok = ok && check.ok;
    nlohmann::json row = {{"name", check.name}, {"ok", check.ok}};
    if (!check.value.empty()) row["value"] = check.value;
    if (!check.hint.empty()) row["hint"] = check.hint;
    rows.push_back(row);
    if (line.json) continue;
    fmt::print("{:<4} {:<16} {}\n", check.ok ? "ok" : "BAD", check.name, check.value);
    if (!check.hint.empty()) fmt::print("     {:<16} {}\n", "", check.hint);
  }
  if (line.json) print_json({{"ok", ok}, {"checks", rows}});
  return 0;
}

}  // namespace yoke::cli
