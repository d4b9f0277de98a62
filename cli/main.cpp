// The program `yoke`: answers at once what needs no tensors, and becomes `yoke-torch` for the rest.
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>

#include "cli/bench_collectives_command.h"
#include "cli/bench_messenger_command.h"
#include "cli/bench_ps_command.h"
#include "cli/bench_scaling_command.h"
#include "cli/config_command.h"
#include "cli/env_command.h"
#include "cli/idle_keys.h"
#include "cli/lab_command.h"
#include "cli/output.h"
#include "cli/partition_command.h"
#include "cli/plan_command.h"
#include "cli/ps_server.h"
#include "cli/report_command.h"
#include "cli/run_command.h"
#include "cli/run_config.h"
#include "cli/simulate_command.h"
#include "cli/topo_command.h"
#include "cli/verify_layouts.h"
#include "cli/why_command.h"
#include "yoke/base/error.h"
#include "yoke/base/log.h"
#include "yoke/cluster/identity.h"
#include "yoke/cluster/launcher/launcher.h"

namespace yoke::cli {
namespace {

// Mistakes in a configuration are reported before LibTorch is loaded, which takes half a second.
void check_configuration(const CommandLine& line) {
  if (line.command == "verify") layout_configurations(line);
  if (line.command == "profile") Configuration().load(line.profile.file, line.overrides);
  if (line.command == "eval") Configuration().load(line.eval.file, line.overrides);
}

int become_torch_program(char** argv);

// Who trains, and whether this process tells what a user should know: ranks that it starts do so themselves.
struct Audience {
  int workers = 1;
  bool tell = true;
};

Audience audience_of(const CommandLine& line, const RunConfig& config) {
  const int nproc = line.train.nproc;
  if (config.parallel.sync == "threads") {
    const auto data = static_cast<int>(std::min<int64_t>(config.parallel.data, 1 << 16));
    if (nproc > 0 && data > 0 && data != nproc)
      throw ConfigError(
          "--nproc {} with parallel.data = {}: both are the number of threads. Take one of them.", nproc,
          data);
    return {std::max({1, nproc, data}), true};
  }
  if (nproc > 0) return {nproc, nproc == 1 && !uses_servers(config)};
  cluster::Identity here = cluster::identify_from_environment();
  return {uses_servers(config) ? worker_count(config, here.world_size) : here.world_size, here.rank == 0};
}

// Before anything starts.
void check_keys(const CommandLine& line, const Configuration& configuration) {
  const RunConfig& config = configuration.values;
  Audience audience = audience_of(line, config);
  refuse_idle_keys(configuration, audience.workers, audience.tell);
  if (audience.tell && config.train.compute.device == "cpu" && config.train.compute.precision == "bf16")
    log::warn(
        "train.precision = \"bf16\" on the CPU is often slower than fp32 and needs more memory; compare with "
        "`yoke bench step --model {} --precision fp32,bf16`",
        config.model.name);
}

// Ranks of their own processes, or one process that makes replicas of its own.
int train(const CommandLine& line, char** argv) {
  Configuration configuration;
  configuration.load(line.train.file, line.overrides);
  check_keys(line, configuration);
  if (uses_servers(configuration.values)) {
    if (line.train.nproc > 0) return cluster::run_job(server_job(line, configuration.values));
    return is_server_rank(configuration.values) ? run_server(configuration.values)
                                                : become_torch_program(argv);
  }
  if (line.train.nproc <= 1) return become_torch_program(argv);
  if (configuration.values.parallel.sync != "threads")
    return cluster::run_job(cluster::own_job(line.train.nproc, line.words));
  std::vector<std::string> words = line.words;
  words.insert(words.begin(), argv[0]);
  if (configuration.values.parallel.data == 0)
    words.insert(words.end(), {"--parallel.data", fmt::format("{}", line.train.nproc)});
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  return become_torch_program(pointers.data());
}

int become_torch_program(char** argv) {
  std::filesystem::path sibling =
      std::filesystem::read_symlink("/proc/self/exe").parent_path() / "yoke-torch";
  ::execv(sibling.c_str(), argv);
  throw ConfigError("{}: {}. It lies beside `yoke` in a complete build: run `make build`.", sibling.string(),
                    describe_errno(errno));
}

using Command = int (*)(const CommandLine&);

// What this program does itself; the other commands need LibTorch.
constexpr std::pair<const char*, Command> kCommands[] = {
    {"config show", show_config},
    {"config keys", show_config_keys},
    {"report", write_report},
    {"env", show_environment},
    {"run", run_on_ranks},
    {"why", explain_failure},
    {"topo show", show_topology},
    {"topo predict", predict_topology},
    {"plan", plan_pipeline},
    {"simulate", simulate_schedule},
    {"partition", partition_graph},
    {"bench collectives", bench_collectives},
    {"bench messenger", bench_messenger},
    {"bench ps", bench_ps},
    {"lab stragglers", run_lab_stragglers},
};

}  // namespace
}  // namespace yoke::cli

int main(int argc, char** argv) {
  using namespace yoke::cli;
  return run_program(argc, argv, [&](const CommandLine& line) {
    for (auto& [name, command] : kCommands) {
      if (line.command == name) return command(line);
    }
    check_configuration(line);
    if (line.command == "bench scaling" && line.bench_scaling.result_file.empty()) return bench_scaling(line);
    if (line.command == "train") return train(line, argv);
    return become_torch_program(argv);
  });
}
