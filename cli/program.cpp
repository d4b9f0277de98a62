#include "cli/program.h"

#include <algorithm>
#include <filesystem>

#include "cli/bench_average_command.h"
#include "cli/bench_collectives_command.h"
#include "cli/bench_messenger_command.h"
#include "cli/bench_ps_command.h"
#include "cli/bench_scaling_command.h"
#include "cli/collab_run.h"
#include "cli/collab_watch_command.h"
#include "cli/config_command.h"
#include "cli/data_command.h"
#include "cli/env_command.h"
#include "cli/idle_keys.h"
#include "cli/lab.h"
#include "cli/output.h"
#include "cli/partition_command.h"
#include "cli/plan_command.h"
#include "cli/ps_command.h"
#include "cli/ps_join_command.h"
#include "cli/report_command.h"
#include "cli/run_checks.h"
#include "cli/run_command.h"
#include "cli/run_config.h"
#include "cli/simulate_command.h"
#include "cli/topo_command.h"
#include "cli/verify_layouts.h"
#include "cli/why_command.h"
#include "yoke/base/error.h"
#include "yoke/base/log.h"
#include "yoke/base/text.h"
#include "yoke/checkpoint/format/folder.h"
#include "yoke/cluster/identity.h"
#include "yoke/cluster/job_contact.h"
#include "yoke/cluster/launcher/launcher.h"
#include "yoke/collab/ticket.h"
#include "yoke/parallel/elastic.h"

namespace yoke::cli {
namespace {

// Configuration errors are reported before LibTorch is loaded, which takes half a second.
void check_configuration(const CommandLine& line) {
  Configuration configuration;
  auto check = [&](const char* command, const std::string& file) {
    if (line.command != command) return;
    configuration.load(file, line.overrides);
    check_memory(configuration.values);
  };
  check("verify", line.verify.file);
  check("profile", line.profile.file);
  check("eval", line.eval.file);
  if (line.command == "estimate") configuration.load(line.estimate.file, line.overrides);
  if (line.command == "verify") layout_configurations(line);
  check("collab start", line.collab.file);
  if (line.command == "collab start") check_collab(configuration);
  if (line.command == "collab join") collab::read_ticket(line.collab.ticket);
}

// Which command trains, and whether this process logs hints: ranks that it starts do so themselves.
struct Audience {
  int workers = 1;
  bool tell = true;
};

Audience audience_of(const CommandLine& line, const RunConfig& config) {
  const int nproc = line.train.nproc;
  if (parallel::in_one_process(config)) {
    const auto data = static_cast<int>(std::min<int64_t>(config.parallel.data, 1 << 16));
    if (nproc > 0 && data > 0 && data != nproc)
      throw ConfigError(
          "--nproc {} with parallel.data = {}: both set the number of threads. Use one of them.", nproc,
          data);
    return {std::max({1, nproc, data}), true};
  }
  if (nproc > 0) return {nproc, nproc == 1 && parallel::ranks_of(config, 1) == 1};
  cluster::Identity here = cluster::identify_from_environment();
  return {parallel::workers_of(config, here.world_size), here.rank == 0};
}

// Before anything starts.
void check_keys(const CommandLine& line, const Configuration& configuration) {
  const RunConfig& config = configuration.values;
  Audience audience = audience_of(line, config);
  refuse_idle_keys(configuration, audience.workers, audience.tell);
  std::vector<std::string> missing = missing_test_files(config);
  if (!missing.empty() && audience.tell)
    log::info("no test file ({}): training without evaluation", join(missing, ", "));
}

// Whether ranks that are started again resume from a checkpoint.
bool resumes_now(const std::string& resume, const std::filesystem::path& out) {
  try {
    return resume == "auto" && checkpoint::format::newest_good(out).newest;
  } catch (const std::exception&) {  // ranks could not read it either
    return false;
  }
}

// Ranks in their own processes, or one process with its own replicas.
int train(const CommandLine& line, const TorchCommands& torch, std::vector<std::string> words,
          const std::string& zygote) {
  Configuration configuration;
  configuration.load(line.train.file, line.overrides);
  check_keys(line, configuration);
  check_memory(configuration.values);
  // A rank of a launcher gets the same from the world it joins.
  const RunConfig& config = configuration.values;
  const bool one_process = parallel::in_one_process(config);
  const int nproc = line.train.nproc;
  if (nproc > 0 && !one_process) {
    if (config.elastic.enabled) parallel::check_elastic_start(config, nproc);
    check_workers(config, nproc);
  }
  if (nproc == 0 && parallel::only_serves(config)) return parallel::serve_others(join_request(config));
  if (nproc == 0 || (nproc == 1 && parallel::ranks_of(config, 1) == 1)) return torch(words);
  if (!one_process) {
    cluster::LaunchOptions job = parallel::job_of(
        config, nproc, line.words,
        [resume = line.train.resume, out = run_folder(config)] { return resumes_now(resume, out); });
    job.typed = line.typed;
    job.zygote = zygote;
    if (parallel::has_servers(config))
      job.contact_file = std::filesystem::path(run_folder(config)) / cluster::kContactFile;
    if (config.elastic.enabled) {
      job.elastic_min = static_cast<int>(config.elastic.min);
      job.rank_restarts = static_cast<int>(config.elastic.restarts);
    }
    return cluster::run_job(job);
  }
  words = line.words;
  if (config.parallel.data == 0) words.insert(words.end(), {"--parallel.data", fmt::format("{}", nproc)});
  return torch(words);
}

using Command = int (*)(const CommandLine&);

// Commands of this program itself; the others need LibTorch.
constexpr std::pair<const char*, Command> kCommands[] = {
    {"config show", show_config},
    {"config keys", show_config_keys},
    {"data tokens", make_tokens},
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
    {"bench average", bench_average},
    {"collab watch", watch_collab},
    {"lab", list_labs},
    {"ps top", show_ps_top},
    {"ps leave", end_ps_member},
    {"ps join", join_as_ps_server},
};

}  // namespace

int run_commands(int argc, char** argv, const TorchCommands& torch, const std::string& zygote) {
  return run_program(argc, argv, [&](const CommandLine& line) {
    const bool trains = line.command == "ps join" && line.ps.works;
    for (auto& [name, command] : kCommands) {
      if (line.command == name && !trains) return command(line);
    }
    if (line.command.starts_with("lab ")) return run_lab(line);
    check_configuration(line);
    if (line.command == "bench scaling" && line.bench_scaling.result_file.empty()) return bench_scaling(line);
    std::vector<std::string> words(argv + 1, argv + argc);
    return line.command == "train" ? train(line, torch, std::move(words), zygote) : torch(words);
  });
}

}  // namespace yoke::cli
