// yoke doctor: what this machine has, what it lacks, and how to get it.
#include <ATen/Parallel.h>
#include <fmt/core.h>
#include <torch/version.h>

#include <filesystem>
#include <thread>

#include "cli/doctor_checks.h"
#include "cli/output.h"
#include "cli/torch/commands.h"
#include "cli/version.h"
#include "yoke/base/error.h"
#include "yoke/base/units.h"
#include "yoke/compute/device.h"
#include "yoke/compute/device_cuda.h"
#include "yoke/compute/precision.h"
#include "yoke/data/dataset.h"
#include "yoke/engine/machine_speed.h"

namespace yoke::cli {
namespace {

// A reference BLAS reaches about 1-3 GFLOP/s per core, a good one ten times that.
constexpr double kSlowMatmulFlopsPerThread = 8e9;
constexpr double kSlowConvolutionFlopsPerThread = 4e9;

Check check_libtorch() {
  return {"libtorch", true,
          fmt::format("{} ({} capability, MKL {}, oneDNN {})", TORCH_VERSION, at::get_cpu_capability(),
                      at::hasMKL() ? "yes" : "no", at::hasMKLDNN() ? "yes" : "no")};
}

Check check_threads() {
  return {"threads", true,
          fmt::format("{} used, {} cores", at::get_num_threads(), std::thread::hardware_concurrency())};
}

Check check_speed(const std::string& name, double flops, double slow_per_thread) {
  bool slow = flops < slow_per_thread * at::get_num_threads();
  return {name, !slow, fmt::format("{:.1f} GFLOP/s", flops / 1e9),
          slow ? "this LibTorch computes slowly (a reference BLAS, or a busy machine). Use the PyPI wheel: "
                 "tools/setup"
               : ""};
}

bool has_nvidia_driver() {
  return std::filesystem::exists("/dev/nvidiactl") || std::filesystem::exists("/proc/driver/nvidia");
}

std::vector<Check> check_gpus() {
  namespace cuda = compute::cuda;
  if (!cuda::built()) {
    bool wasted = has_nvidia_driver();
    return {{"cuda", !wasted,
             wasted ? "a GPU is present, but this build has no CUDA support" : "none: CPU-only build",
             "for GPUs: LibTorch with CUDA, then make build PRESET=cuda", !wasted}};
  }
  int count = cuda::device_count();
  if (count == 0)
    return {{"cuda", true, "no device can be used", "check nvidia-smi and CUDA_VISIBLE_DEVICES", true}};
  std::vector<Check> checks;
  for (int index = 0; index < count; ++index) {
    cuda::DeviceMemory memory = cuda::device_memory(index);
    bool little = memory.free < memory.total / 10;
    checks.push_back({fmt::format("cuda:{}", index), !little,
                      fmt::format("{}, {}, {} free", cuda::device_name(index),
                                  format_bytes(static_cast<double>(memory.total)),
                                  format_bytes(static_cast<double>(memory.free))),
                      little ? "most of its memory is in use: see nvidia-smi" : ""});
  }
  return checks;
}

Check check_data() {
  data::DataOptions options;
  options.name = "fashion_mnist";
  try {
    auto dataset = data::open(options, data::Split::kTrain, {SampleKind::kImage, {1, 28, 28}, 10}, 1);
    return {"fashion_mnist", true,
            fmt::format("{} training images", format_count(static_cast<double>(dataset->size())))};
  } catch (const ConfigError& error) {
    return {"fashion_mnist", false, "missing", error.what()};
  }
}

nlohmann::json to_json(const Check& check) {
  nlohmann::json row = {{"name", check.name}, {"ok", check.ok}};
  if (!check.value.empty()) row["value"] = check.value;
  if (!check.hint.empty()) row["hint"] = check.hint;
  return row;
}

std::vector<Check> all_checks() {
  compute::set_threads(0);
  std::vector<Check> checks = {
      {"yoke", true, kVersion},
      check_libtorch(),
      check_threads(),
      check_speed("matrix multiply", engine::matmul_flops(torch::kCPU, Precision::kFp32),
                  kSlowMatmulFlopsPerThread),
      check_speed("convolution", engine::convolution_flops(torch::kCPU, Precision::kFp32),
                  kSlowConvolutionFlopsPerThread),
  };
  for (const std::vector<Check>& more : {check_gpus(), machine_checks(), backend_checks(), {check_data()}})
    checks.insert(checks.end(), more.begin(), more.end());
  return checks;
}

}  // namespace

int run_doctor(const CommandLine& line) {
  if (line.list_faults) return list_faults(line);
  std::vector<Check> checks = all_checks();
  int64_t bad = std::count_if(checks.begin(), checks.end(), [](const Check& check) { return !check.ok; });
  if (line.json) {
    nlohmann::json rows = nlohmann::json::array();
    for (const Check& check : checks) rows.push_back(to_json(check));
    print_json({{"ok", bad == 0}, {"checks", rows}});
    return 0;
  }
  fmt::print("{}", to_text(checks));
  fmt::print("{}\n", bad == 0 ? "no problems found" : fmt::format("{} to fix, marked BAD", bad));
  return 0;
}

}  // namespace yoke::cli
