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

// OUT/updates.jsonl, and what is reported at the end.
class PsLedger {
 public:
  PsLedger(const RunConfig& config, std::filesystem::path out) : config_(config), out_(std::move(out)) {}

  void note(const ps::UpdateRecord& record) {
    if (!config_.ps.log_updates) return;
    if (!lines_.is_open()) open();
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
  void open() {
    std::filesystem::create_directories(out_);
    lines_.open(out_ / "updates.jsonl", std::ios::app);
  }

  std::string report(const ps::Accounting& counts, int64_t version, int64_t k) const {
    nlohmann::json document = to_json(counts);
    document["policy"] = config_.ps.policy;
    document["k"] = k;
    document["version"] = version;
    document["servers"] = config_.ps.servers;
    document["place"] = config_.ps.place;
    document["slowdown"] = config_.slowdown.law;
    return document.dump();
  }

 private:
  const RunConfig& config_;
  std::filesystem::path out_;
  std::ofstream lines_;
};

namespace {

ps::ServerOptions server_options(const RunConfig& config, int world_size, PsLedger& ledger) {
  ps::ServerOptions options;
  options.servers = static_cast<int>(config.ps.servers);
  options.workers = worker_count(config, world_size);
  options.make_updater = ps::make_optimizer(parallel::updater_options(config.train.optimizer));
  options.pushes_between_pulls = (config.ps.n_fetch + config.ps.n_push - 1) / config.ps.n_push;
  ps::SchedulerOptions& scheduler = options.scheduler;
  scheduler.policy = policy_of(config, options.workers);
  scheduler.delay_schedule = plan::parse_delay_schedule("ps.max_delay", config.ps.max_delay);
  scheduler.warm_start = config.ps.warm_start;
  scheduler.stale_step = config.ps.stale_step;
  scheduler.distance_c = config.ps.stale_c;
  scheduler.distance_max = config.ps.stale_max;
  // With local steps a worker's pushes are sums of gradients that it has clipped itself.
  bool local = config.ps.n_push > 1 || config.ps.n_fetch > 1;
  scheduler.clip_norm = local ? 0 : config.train.optimizer.clip_norm;
  scheduler.adasync = config.ps.adasync;
  scheduler.adasync_seconds = config.ps.adasync_interval;
  scheduler.say = [](const std::string& text) { log::warn("{}", text); };
  scheduler.on_update = [&ledger](const ps::UpdateRecord& record) { ledger.note(record); };
  options.report = [&ledger](const ps::Accounting& counts, int64_t version, int64_t k) {
    return ledger.report(counts, version, k);
  };
  return options;
}

// As `train` names it.
std::filesystem::path run_folder(const RunConfig& config) {
  if (!config.out.dir.empty()) return config.out.dir;
  return fmt::format("runs/{}_{}", config.model.name, config.data.name);
}

// For errors. With a server inside, a worker is both.
std::string role_of(const RunConfig& config, int rank, int world_size) {
  int workers = worker_count(config, world_size);
  if (rank >= workers) return fmt::format("parameter server {}", rank - workers);
  bool both = config.ps.place == "colocated" && rank < config.ps.servers;
  return both ? fmt::format("worker {} with parameter server {}", rank, rank)
              : fmt::format("worker {}", rank);
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

int worker_count(const RunConfig& config, int world_size) {
  bool inside = config.ps.place == "colocated";
  auto servers = static_cast<int>(config.ps.servers);
  if (inside && servers > world_size)
    throw ConfigError(
        "ps.servers = {} with {} worker{} and ps.place = \"colocated\": each worker holds one at most.",
        servers, world_size, world_size == 1 ? "" : "s");
  if (!inside && servers >= world_size)
    throw ConfigError(
        "parallel.sync = \"ps\" with ps.servers = {} in a world of {}: there is no worker. Start more ranks, "
        "e.g. "
        "with --nproc WORKERS.",
        servers, world_size);
  return inside ? world_size : world_size - servers;
}

cluster::LaunchOptions server_job(const CommandLine& line, const RunConfig& config) {
  int workers = line.train.nproc;
  policy_of(config, workers);
  int ranks = workers + (config.ps.place == "colocated" ? 0 : static_cast<int>(config.ps.servers));
  cluster::LaunchOptions job = cluster::own_job(ranks, line.words);
  job.typed = line.typed;
  job.expendable = expendable_ranks(config, ranks);
  for (int rank = 0; rank < ranks; ++rank) job.roles.push_back(role_of(config, rank, ranks));
  if (config.ps.on_worker_loss == "restart") job.rank_restarts = static_cast<int>(config.ps.restarts);
  return job;
}

// The first writes records and checkpoints; servers hold the parameters.
std::vector<bool> expendable_ranks(const RunConfig& config, int world_size) {
  int workers = worker_count(config, world_size);
  if (config.ps.on_worker_loss == "stop") return {};
  std::vector<bool> expendable(static_cast<size_t>(world_size), false);
  int first = config.ps.place == "colocated" ? static_cast<int>(config.ps.servers) : 1;
  for (int rank = first; rank < workers; ++rank) expendable[static_cast<size_t>(rank)] = true;
  return expendable;
}

bool is_server_rank(const RunConfig& config) {
  cluster::Identity identity = cluster::identify_from_environment();
  return identity.rank >= worker_count(config, identity.world_size);
}

cluster::World join_with_servers(const RunConfig& config) {
  cluster::Identity identity = cluster::identify_from_environment();
  cluster::JoinOptions options;
  options.expendable = expendable_ranks(config, identity.world_size);
  options.role = role_of(config, identity.rank, identity.world_size);
  return cluster::World(identity, options);
}

struct HostedServer::Parts {
  Parts(const RunConfig& config, cluster::World& own_world, std::unique_ptr<comm::Messenger> own_messenger)
      : world(own_world),
        ledger(config, run_folder(config)),
        messenger(std::move(own_messenger)),
        server(*messenger, server_options(config, own_world.size(), ledger)) {}
  ~Parts() { messenger.reset(); }  // its thread calls the server

  cluster::World& world;
  PsLedger ledger;
  std::unique_ptr<comm::Messenger> messenger;
  ps::Server server;
};

HostedServer::HostedServer(const RunConfig& config, cluster::World& world,
                           std::unique_ptr<comm::Messenger> messenger)
    : parts_(std::make_unique<Parts>(config, world, std::move(messenger))) {}
HostedServer::~HostedServer() = default;

void HostedServer::finish() {
  cluster::World& world = parts_->world;
  parts_->server.run();
  parts_.reset();
  world.failure()->check("serving parameters");
}

int run_server(const RunConfig& config) {
  // Workers that are told to stop still need their servers, for a last checkpoint; who kills, kills.
  for (int signal : {SIGINT, SIGTERM, SIGHUP}) std::signal(signal, SIG_IGN);
  cluster::World world = join_with_servers(config);
  HostedServer(config, world, ps::connect(world, config.parallel.backend)).finish();
  return 0;
}

}  // namespace yoke::cli
