#include "cli/ps_server.h"

#include <fmt/core.h>

#include <cmath>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "yoke/base/error.h"
#include "yoke/base/file.h"
#include "yoke/base/log.h"
#include "yoke/cluster/identity.h"
#include "yoke/cluster/world.h"
#include "yoke/parallel/ps/setup.h"
#include "yoke/plan/policies/delay_schedule.h"
#include "yoke/ps/connect.h"
#include "yoke/ps/server.h"

namespace yoke::cli {
namespace {

// OUT/updates.jsonl, and what is reported at the end.
class Ledger {
 public:
  Ledger(const RunConfig& config, std::filesystem::path out) : config_(config), out_(std::move(out)) {
    if (!config.ps.log_updates) return;
    std::filesystem::create_directories(out_);
    lines_.open(out_ / "updates.jsonl", std::ios::app);
  }

  void note(const ps::UpdateRecord& record) {
    if (!lines_.is_open()) return;
    nlohmann::json line = {{"version", record.version},     {"time", record.time},
                           {"gradients", record.gradients}, {"loss", record.loss},
                           {"staleness", record.staleness}, {"k", record.k}};
    if (record.max_delay == plan::PolicyOptions::kUnbounded)
      line["max_delay"] = "inf";
    else if (record.max_delay)
      line["max_delay"] = *record.max_delay;
    lines_ << line.dump() << '\n';
    if (record.version % 64 == 0) lines_.flush();
  }

  std::string report(const ps::Accounting& counts, int64_t version, int64_t k) const {
    nlohmann::json document = to_json(counts);
    document["policy"] = config_.ps.policy;
    document["k"] = k;
    document["version"] = version;
    document["servers"] = config_.ps.servers;
    document["slowdown"] = config_.slowdown.law;
    return document.dump();
  }

 private:
  const RunConfig& config_;
  std::filesystem::path out_;
  std::ofstream lines_;
};

// As `train` names it.
std::filesystem::path run_folder(const RunConfig& config) {
  if (!config.out.dir.empty()) return config.out.dir;
  return fmt::format("runs/{}_{}", config.model.name, config.data.name);
}

}  // namespace

bool uses_servers(const RunConfig& config) {
  return config.parallel.sync == "ps";
}

plan::PolicyOptions policy_of(const RunConfig& config, int workers) {
  plan::PolicyOptions policy;
  policy.rule = plan::parse_rule(config.ps.policy);
  policy.workers = workers;
  policy.k = config.ps.k;
  policy.max_delay = plan::parse_delay_schedule("ps.max_delay", config.ps.max_delay).front().max_delay;
  if (plan::traits_of(policy.rule).k == plan::RuleTraits::kGiven && policy.k == 0)
    throw ConfigError("ps.policy = \"{}\": needs ps.k, the number of gradients of an update.",
                      config.ps.policy);
  plan::validate(policy);
  return policy;
}

int64_t total_updates(const RunConfig& config, int workers, double batches_per_epoch) {
  const engine::LoopOptions& loop = config.train.loop;
  if (loop.steps > 0) return loop.steps;
  auto k = static_cast<double>(plan::effective_k(policy_of(config, workers)));
  auto local = static_cast<double>(config.ps.n_push);
  double minibatches = loop.epochs * batches_per_epoch * workers / static_cast<double>(loop.accumulate);
  return static_cast<int64_t>(std::ceil(minibatches / k / local));
}

cluster::LaunchOptions server_job(const CommandLine& line, const RunConfig& config) {
  int workers = line.train.nproc, servers = static_cast<int>(config.ps.servers);
  policy_of(config, workers);
  cluster::LaunchOptions job = cluster::own_job(workers + servers, line.words);
  job.expendable = expendable_ranks(config, workers + servers);
  if (config.ps.on_worker_loss == "restart") job.rank_restarts = static_cast<int>(config.ps.restarts);
  return job;
}

// The first writes records and checkpoints; servers hold the parameters.
std::vector<bool> expendable_ranks(const RunConfig& config, int world_size) {
  if (config.ps.on_worker_loss == "stop") return {};
  std::vector<bool> expendable(static_cast<size_t>(world_size), false);
  for (int rank = 1; rank < world_size - config.ps.servers; ++rank)
    expendable[static_cast<size_t>(rank)] = true;
  return expendable;
}

bool is_server_rank(const RunConfig& config) {
  cluster::Identity identity = cluster::identify_from_environment();
  if (identity.world_size <= config.ps.servers)
    throw ConfigError(
        "parallel.sync = \"ps\" with ps.servers = {} in a world of {}: there is no worker. Start more ranks, "
        "e.g. "
        "with --nproc WORKERS.",
        config.ps.servers, identity.world_size);
  return identity.rank >= identity.world_size - config.ps.servers;
}

cluster::World join_with_servers(const RunConfig& config) {
  cluster::Identity identity = cluster::identify_from_environment();
  cluster::JoinOptions options;
  options.expendable = expendable_ranks(config, identity.world_size);
  return cluster::World(identity, options);
}

int run_server(const RunConfig& config) {
  // Workers that are told to stop still need their servers, for a last checkpoint; who kills, kills.
  for (int signal : {SIGINT, SIGTERM, SIGHUP}) std::signal(signal, SIG_IGN);
  cluster::World world = join_with_servers(config);
  ps::ServerOptions options;
  options.servers = static_cast<int>(config.ps.servers);
  options.workers = world.size() - options.servers;
  options.make_updater = ps::make_optimizer(parallel::updater_options(config.train.optimizer));
  ps::SchedulerOptions& scheduler = options.scheduler;
  scheduler.policy = policy_of(config, options.workers);
  scheduler.delay_schedule = plan::parse_delay_schedule("ps.max_delay", config.ps.max_delay);
  scheduler.warm_start = config.ps.warm_start;
  scheduler.stale_step = config.ps.stale_step;
  scheduler.distance_c = config.ps.stale_c;
  scheduler.distance_max = config.ps.stale_max;
  scheduler.adasync = config.ps.adasync;
  scheduler.adasync_seconds = config.ps.adasync_interval;
  scheduler.say = [](const std::string& text) { log::warn("{}", text); };
  Ledger ledger(config, run_folder(config));
  bool first = world.rank() == options.workers;
  if (first) scheduler.on_update = [&](const ps::UpdateRecord& record) { ledger.note(record); };
  options.report = [&](const ps::Accounting& counts, int64_t version, int64_t k) {
    return ledger.report(counts, version, k);
  };
  std::unique_ptr<comm::Messenger> messenger = ps::connect(world, config.parallel.backend);
  ps::Server server(*messenger, std::move(options));
  try {
    server.run();
  } catch (...) {
    messenger.reset();
    throw;
  }
  messenger.reset();  // its thread calls the server
  world.failure()->check("serving parameters");
  return 0;
}

}  // namespace yoke::cli
