// The program `yoke`: answers at once what needs no tensors, and becomes `yoke-torch` for the rest.
#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include "cli/bench_collectives_command.h"
#include "cli/bench_messenger_command.h"
#include "cli/bench_ps_command.h"
#include "cli/bench_scaling_command.h"
#include "cli/config_command.h"
#include "cli/env_command.h"
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
#include "cli/why_command.h"
#include "yoke/base/error.h"
#include "yoke/cluster/launcher/launcher.h"

namespace yoke::cli {
namespace {

// Mistakes in a configuration are reported before LibTorch is loaded, which takes half a second.
void check_configuration(const CommandLine& line) {
  if (line.command == "verify") Configuration().load(line.verify.file, line.overrides);
  if (line.command == "profile") Configuration().load(line.profile.file, line.overrides);
  if (line.command == "eval") Configuration().load(line.eval.file, line.overrides);
}

int become_torch_program(char** argv);

// Ranks of their own processes, or one process that makes replicas of its own.
int train(const CommandLine& line, char** argv) {
  Configuration configuration;
  configuration.load(line.train.file, line.overrides);
  if (uses_servers(configuration.values)) {
    if (line.train.nproc > 0) return cluster::run_job(server_job(line, configuration.values));
    return is_server_rank(configuration.values) ? run_server(configuration.values)
                                                : become_torch_program(argv);
  }
  if (line.train.nproc <= 1) return become_torch_program(argv);
  if (configuration.values.parallel.sync != "threads") {
    cluster::LaunchOptions job = cluster::own_job(line.train.nproc, line.words);
    job.typed = line.typed;
    for (int rank = 0; rank < line.train.nproc; ++rank)
      job.roles.push_back(stage_role(configuration.values, rank, line.train.nproc));
    return cluster::run_job(job);
  }
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
