#include <fmt/core.h>
#include <unistd.h>

#include "cli/output.h"
#include "cli/torch/commands.h"
#include "yoke/base/terminal.h"
#include "yoke/base/units.h"
#include "yoke/compute/bench_kernels.h"
#include "yoke/compute/device.h"
#include "yoke/compute/precision.h"
#include "yoke/report/table.h"

namespace yoke::cli {
namespace {

torch::ScalarType type_of(Precision precision) {
  switch (precision) {
    case Precision::kBf16:
      return torch::kBFloat16;
    case Precision::kFp16:
      return torch::kFloat16;
    default:
      return torch::kFloat32;
  }
}

double speed_of(const compute::KernelSpeed& one) {
  return static_cast<double>(one.bytes) / one.seconds;
}

void print_table(const compute::KernelSpeeds& speeds) {
  report::Table table({"kernel", "size", "time", "GB/s", "of a copy"});
  for (const compute::KernelSpeed& one : speeds.kernels)
    table.add({one.name, one.shape, format_duration(one.seconds), fmt::format("{:.4g}", 1e-9 * speed_of(one)),
               fmt::format("{:.0f} %", 100 * speed_of(one) / speeds.copy_bytes_per_s)});
  fmt::print("{}", table.to_text(terminal::is_terminal(STDOUT_FILENO) ? terminal::width(STDOUT_FILENO) : 0));
  fmt::print("a copy moves {:.4g} GB/s (read and written); {}\n", 1e-9 * speeds.copy_bytes_per_s,
             "bytes of a kernel are the least it has to move");
}

nlohmann::json to_json(const compute::KernelSpeeds& speeds, const BenchKernelsArguments& arguments) {
  nlohmann::json kernels = nlohmann::json::array();
  for (const compute::KernelSpeed& one : speeds.kernels)
    kernels.push_back({{"name", one.name},
                       {"size", one.shape},
                       {"bytes", one.bytes},
                       {"seconds", one.seconds},
                       {"bytes_per_s", speed_of(one)},
                       {"copy_fraction", speed_of(one) / speeds.copy_bytes_per_s}});
  return {{"device", arguments.device},
          {"precision", arguments.precision},
          {"copy_bytes_per_s", speeds.copy_bytes_per_s},
          {"kernels", kernels}};
}

}  // namespace

int run_bench_kernels(const CommandLine& line) {
  const BenchKernelsArguments& arguments = line.bench_kernels;
  const torch::Device device = compute::resolve_device(arguments.device);
  compute::set_threads(1);
  const torch::ScalarType type = type_of(parse_precision(arguments.precision));
  const int64_t rows = arguments.rows > 0 ? arguments.rows : device.is_cuda() ? 16384 : 1024;
  const compute::KernelSpeeds speeds = compute::bench_kernels(device, type, rows);
  if (line.json)
    print_json(to_json(speeds, arguments));
  else
    print_table(speeds);
  return 0;
}

}  // namespace yoke::cli
