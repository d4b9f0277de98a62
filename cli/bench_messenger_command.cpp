#include "cli/bench_messenger_command.h"

#include <fmt/core.h>
#include <unistd.h>

#include "cli/output.h"
#include "yoke/base/error.h"
#include "yoke/base/memory.h"
#include "yoke/base/terminal.h"
#include "yoke/base/units.h"
#include "yoke/comm/messages/bench_messages.h"
#include "yoke/report/table.h"

namespace yoke::cli {
namespace {

std::vector<comm::MessengerBench> sweep(const BenchMessengerArguments& arguments) {
  std::vector<comm::MessengerBench> all;
  for (const std::string& backend : arguments.backends) {
    if (backend != "shm" && backend != "tcp")
      throw ConfigError("--backend {}: unknown. Accepted: shm tcp.", backend);
    for (const std::string& size : arguments.bytes) {
      auto bytes = parse_bytes(size);
      if (!bytes) throw ConfigError("--bytes {}: not a size. Accepted: 0, 1K, 64K, 1MB, …", size);
      if (2 * static_cast<double>(*bytes) > static_cast<double>(usable_memory_bytes()))
        throw ConfigError("--bytes {}: two processes need this memory, but this machine has {}.", size,
                          format_bytes(static_cast<double>(usable_memory_bytes())));
      all.push_back({backend, static_cast<size_t>(*bytes), arguments.seconds});
    }
  }
  return all;
}

}  // namespace

int bench_messenger(const CommandLine& line) {
  nlohmann::json results = nlohmann::json::array();
  report::Table table({"backend", "bytes", "requests/s", "GB/s"});
  for (const comm::MessengerBench& bench : sweep(line.bench_messenger)) {
    comm::MessengerResult result = comm::bench_messenger(bench);
    results.push_back({{"backend", bench.backend},
                       {"bytes", bench.bytes},
                       {"requests_per_s", result.requests_per_s},
                       {"bandwidth", result.bandwidth}});
    table.add({bench.backend, fmt::format("{}", bench.bytes), fmt::format("{:.0f}", result.requests_per_s),
               fmt::format("{:.3f}", result.bandwidth / 1e9)});
  }
  if (line.json)
    print_json({{"results", results}});
  else
    fmt::print("{}",
               table.to_text(terminal::is_terminal(STDOUT_FILENO) ? terminal::width(STDOUT_FILENO) : 0));
  return 0;
}

}  // namespace yoke::cli
