#include "yoke/parallel/sync/servers/server_ranks.h"

#include <fmt/core.h>

#include <chrono>
#include <cmath>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "yoke/base/error.h"
#include "yoke/base/file.h"
#include "yoke/base/log.h"
#include "yoke/base/stop_signals.h"
#include "yoke/cluster/identity.h"
#include "yoke/parallel/mesh.h"
#include "yoke/parallel/sync/servers/late_server.h"
#include "yoke/parallel/sync/servers/setup.h"
#include "yoke/plan/policies/delay_schedule.h"
#include "yoke/ps/connect.h"
#include "yoke/ps/replica_messenger.h"
#include "yoke/ps/succession.h"

namespace yoke::parallel {

// OUT/updates.jsonl, and what is reported at the end.
class PsLedger {
 public:
  PsLedger(const Choices& choices, std::filesystem::path out) : config_(choices), out_(std::move(out)) {}

  void note(const ps::UpdateRecord& record) {
    if (!config_.ps.log_updates) return;
    if (!lines_.is_open()) open();
    nlohmann::json line = {{"version", record.version},     {"time", record.time},
                           {"gradients", record.gradients}, {"loss", record.loss},
                           {"staleness", record.staleness}, {"k", record.k}};
    if (!record.batches.empty()) line["batches"] = record.batches;
    if (record.max_delay == plan::PolicyOptions::kUnbounded)
      line["max_delay"] = "inf";
    else if (record.max_delay)
      line["max_delay"] = *record.max_delay;
    lines_ << line.dump() << '\n';
    // A server that takes over continues the file: little of it may be in memory only.
    if (record.version % 64 == 0 || config_.ps.replicas > 0) lines_.flush();
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
    document["replicas"] = config_.ps.replicas;
    document["slowdown"] = config_.slowdown.law;
    return document.dump();
  }

 private:
  const Choices& config_;
  std::filesystem::path out_;
  std::ofstream lines_;
};

ps::ReplicaRanks replica_ranks(const Choices& config, int workers) {
  const ParallelOptions& parallel = config.parallel;
  if (parallel.pipeline * parallel.tensor == 1) return {workers};
  const Mesh mesh = fit_mesh(workers, parallel.pipeline, parallel.data, parallel.tensor);
  return {mesh.data, mesh.pipeline, mesh.tensor};
}

namespace {

// The rule of sparse tables that equals the optimizer; empty: there is none. That of proximal gradient moves
// the other rows, too, once they are used.
std::string rule_of(const optim::OptimizerOptions& optimizer) {
  const bool plain = optimizer.weight_decay == 0;
  const std::string& name = optimizer.optimizer;
  if (name == "ftrl" || name == "proximal") return name;
  if (name == "sgd" && optimizer.momentum == 0 && plain) return name;
  return name == "adagrad" && plain ? name : "";
}

// The option, and why rows cannot be pushed and pulled alone with it. Empty: they can.
std::string why_not_sparse(const Choices& config, const optim::OptimizerOptions& optimizer) {
  if (rule_of(optimizer).empty())
    return fmt::format(
        "train.optimizer = \"{}\", train.momentum = {}, train.weight_decay = {}: rows without a gradient "
        "would "
        "move. Use ftrl or proximal, or without weight decay sgd without momentum or adagrad",
        optimizer.optimizer, optimizer.momentum, optimizer.weight_decay);
  if (optimizer.clip_norm > 0) return "train.clip_norm: gradients in tables are not clipped";
  if (config.ps.n_push > 1 || config.ps.n_fetch > 1)
    return "ps.n_push and ps.n_fetch: local steps need all rows";
  if (config.ps.stale_step == "distance") return "ps.stale_step = \"distance\": it compares all rows";
  if (config.parallel.pipeline * config.parallel.tensor > 1)
    return "parallel.pipeline and parallel.tensor: tables are for workers of one rank";
  return "";
}

}  // namespace

bool uses_sparse_tables(const Choices& config, const optim::OptimizerOptions& optimizer) {
  if (config.ps.sparse == "off") return false;
  const std::string why = why_not_sparse(config, optimizer);
  if (!why.empty() && config.ps.sparse == "on")
    throw ConfigError("ps.sparse = \"on\" cannot be combined with {}.", why);
  return why.empty();
}

ps::ServerOptions server_options(const Choices& config, const optim::OptimizerOptions& optimizer,
                                 int workers) {
  ps::ServerOptions options;
  const ps::Places places = places_of(config, workers);
  options.servers = places.all_servers;
  options.at_start = servers_at_start(config);
  options.replicas = replicas_of(config);
  options.timeout = config.ps.timeout;
  options.ranks = replica_ranks(config, workers);
  options.workers = options.ranks.replicas;
  if (config.ps.max_workers > 0) {
    options.workers = places.all_workers;
    options.workers_at_start = workers;
  }
  if (optimizer.optimizer == "lbfgs") {
    options.make_updater = ps::make_adder();  // not used: parameters lie in vectors
    options.sandblaster = ps::sandblaster::SandblasterOptions{
        {optimizer.history, optimizer.inner_steps, optimizer.line_search == "strong_wolfe"},
        config.sandblaster,
        config.ps.timeout};
  } else {
    options.make_updater = ps::make_optimizer(updater_options(optimizer));
  }
  if (const std::string rule = rule_of(optimizer); !rule.empty())
    options.make_rule = [rule, optimizer](int) {
      return ps::sparse::make_rule({.name = rule,
                                    .eps = optim::effective_eps(optimizer),
                                    .beta = optimizer.ftrl_beta,
                                    .l1 = optimizer.l1,
                                    .l2 = optimizer.l2});
    };
  options.pushes_between_pulls = (config.ps.n_fetch + config.ps.n_push - 1) / config.ps.n_push;
  ps::SchedulerOptions& scheduler = options.scheduler;
  scheduler.policy = policy_of(config, options.ranks.replicas);
  scheduler.policy.keeps_rounds = scheduler.hands_out = config.ps.max_workers > 0;
  scheduler.min_workers = static_cast<int>(config.ps.min_workers);
  scheduler.delay_schedule = plan::parse_delay_schedule("ps.max_delay", config.ps.max_delay);
  scheduler.warm_start = config.ps.warm_start;
  scheduler.stale_step = config.ps.stale_step;
  scheduler.distance_c = config.ps.stale_c;
  scheduler.distance_max = config.ps.stale_max;
  // With local steps a worker's pushes are sums of gradients that it has clipped itself.
  bool local = config.ps.n_push > 1 || config.ps.n_fetch > 1;
  scheduler.clip_norm = local ? 0 : optimizer.clip_norm;
  scheduler.adasync = config.ps.adasync;
  scheduler.adasync_seconds = config.ps.adasync_interval;
  scheduler.say = [](const std::string& text) { log::warn("{}", text); };
  return options;
}

namespace {

ps::ServerOptions recorded_by(PsLedger& ledger, ps::ServerOptions options) {
  options.scheduler.on_update = [&ledger](const ps::UpdateRecord& record) { ledger.note(record); };
  options.report = [&ledger](const ps::Accounting& counts, int64_t version, int64_t k) {
    return ledger.report(counts, version, k);
  };
  return options;
}

}  // namespace

plan::PolicyOptions policy_of(const Choices& config, int workers) {
  plan::PolicyOptions policy;
  policy.rule = plan::parse_rule(config.ps.policy);
  policy.workers = workers;
  policy.k = config.ps.k;
  policy.max_delay = plan::parse_delay_schedule("ps.max_delay", config.ps.max_delay).front().max_delay;
  if (plan::traits_of(policy.rule).k == plan::RuleTraits::kGiven && policy.k == 0)
    throw ConfigError("ps.policy = \"{}\": needs ps.k, the number of gradients per update.",
                      config.ps.policy);
  plan::validate(policy);
  return policy;
}

int workers_beside_servers(const Choices& config, int world_size) {
  bool inside = config.ps.place == "colocated";
  auto servers = static_cast<int>(config.ps.servers);
  if (inside && servers > world_size)
    throw ConfigError(
        "ps.servers = {} with {} worker{} and ps.place = \"colocated\": each worker hosts at most one "
        "server.",
        servers, world_size, world_size == 1 ? "" : "s");
  if (!inside && servers >= world_size)
    throw ConfigError(
        "parallel.sync = \"ps\" with ps.servers = {} in a world of {}: there is no worker. Start more ranks, "
        "e.g. "
        "with --nproc WORKERS.",
        servers, world_size);
  return inside ? world_size : world_size - servers;
}

int replicas_of(const Choices& config) {
  const auto replicas = static_cast<int>(config.ps.replicas);
  ps::Succession(static_cast<int>(config.ps.servers), replicas);  // checks
  if (replicas > 0 && config.ps.place == "colocated")
    throw ConfigError(
        "ps.replicas = {} with ps.place = \"colocated\": a server inside a worker ends with it, and the job "
        "with the first worker. Use ps.place = \"dedicated\".",
        replicas);
  return replicas;
}

std::vector<std::string> machines_of_servers(const Choices& config, const cluster::World& world,
                                             int workers) {
  std::vector<std::string> machines;
  if (replicas_of(config) == 0 || world.alone()) return machines;
  for (int server = 0; server < config.ps.servers; ++server)
    machines.push_back(world.members().at(static_cast<size_t>(workers + server)).machine);
  return machines;
}

int servers_at_start(const Choices& config) {
  return config.ps.max_servers > 0 ? static_cast<int>(config.ps.servers) : 0;
}

namespace {

// Throws ConfigError that names what excludes workers that join and leave.
void check_joining_workers(const Choices& config, int workers) {
  const int64_t most = config.ps.max_workers;
  if (config.ps.min_workers > workers)
    throw ConfigError("ps.min_workers = {} with {} worker{}: the job starts with fewer. Lower it.",
                      config.ps.min_workers, workers, workers == 1 ? "" : "s");
  if (most == 0) return;
  if (most < workers)
    throw ConfigError("ps.max_workers = {} with {} workers: the job starts with more. Raise it.", most,
                      workers);
  auto refuse = [&](const std::string& with, const char* why) {
    throw ConfigError("ps.max_workers = {} with {}: {}.", most, with, why);
  };
  if (config.ps.place == "colocated")
    refuse("ps.place = \"colocated\"", "a worker with a server cannot leave. Use ps.place = \"dedicated\"");
  if (config.parallel.pipeline * config.parallel.tensor > 1)
    refuse("parallel.pipeline or parallel.tensor",
           "a replica of several ranks cannot join or leave. Use workers of one rank");
  if (config.ps.on_worker_loss == "stop")
    refuse("ps.on_worker_loss = \"stop\"",
           "workers may come and go there. Use continue, with ps.min_workers for how many must be left");
}

}  // namespace

// A few homes for each server, so that those that join get a fair share.
ps::Places places_of(const Choices& config, int workers) {
  check_joining_workers(config, static_cast<int>(replica_ranks(config, workers).replicas));
  constexpr int64_t kHomes = 4;
  const int64_t servers = config.ps.servers, most = config.ps.max_servers;
  ps::Places places{workers, static_cast<int>(servers), workers, static_cast<int>(servers)};
  if (config.ps.max_workers > 0) places.all_workers += late_ranks(config, workers);
  if (most == 0) return places;
  if (most < servers)
    throw ConfigError("ps.max_servers = {} with ps.servers = {}: the job starts with more. Raise it.", most,
                      servers);
  if (config.ps.place == "colocated")
    throw ConfigError(
        "ps.max_servers = {} with ps.place = \"colocated\": servers inside workers cannot join or leave. Use "
        "ps.place = \"dedicated\".",
        most);
  const int64_t numbers = servers + late_ranks(config, workers);
  places.all_servers = static_cast<int>(servers * std::max(kHomes, (numbers + servers - 1) / servers));
  return places;
}

int late_ranks(const Choices& config, int workers) {
  return static_cast<int>(std::max<int64_t>(0, config.ps.max_servers - config.ps.servers) +
                          std::max<int64_t>(0, config.ps.max_workers - workers));
}

int ranks_with_servers(const Choices& config, int workers) {
  replicas_of(config);
  places_of(config, workers);
  policy_of(config, replica_ranks(config, workers).replicas);
  return workers + (config.ps.place == "colocated" ? 0 : static_cast<int>(config.ps.servers));
}

// The first worker writes records and checkpoints; servers hold the parameters, unless others have copies.
std::vector<bool> expendable_ranks(const Choices& config, int world_size) {
  int workers = workers_beside_servers(config, world_size);
  const bool copied = replicas_of(config) > 0;
  if (config.ps.on_worker_loss == "stop" && !copied) return {};
  std::vector<bool> expendable(static_cast<size_t>(world_size), false);
  for (int rank = workers; rank < world_size; ++rank) expendable[static_cast<size_t>(rank)] = copied;
  if (config.ps.on_worker_loss == "stop") return expendable;
  const ps::ReplicaRanks ranks = replica_ranks(config, workers);
  int first = config.ps.place == "colocated" ? static_cast<int>(config.ps.servers) : 1;
  for (int rank = 0; rank < workers; ++rank)
    expendable[static_cast<size_t>(rank)] = ranks.replica_of(rank) >= first;
  return expendable;
}

struct HostedServer::Parts {
  Parts(const Choices& given, const optim::OptimizerOptions& optimizer, std::filesystem::path out,
        cluster::World& own_world, std::unique_ptr<comm::Messenger> own_messenger, int workers)
      : choices(given),
        chosen_optimizer(optimizer),
        world(own_world),
        ledger(choices, std::move(out)),
        options(placed(server_options(choices, optimizer, workers), world, workers)),
        messenger(std::make_unique<ps::ReplicaMessenger>(std::move(own_messenger), options.ranks)),
        server(*messenger, recorded_by(ledger, options)) {
    if (!world.alone())
      questions = world.session().answer_questions(
          [this](const std::string& question, const cluster::Session::Answer& answer) {
            answer_question(question, answer);
          });
  }
  ~Parts() {
    questions.reset();
    messenger.reset();  // its thread calls the server
  }

  ps::ServerOptions placed(ps::ServerOptions given_options, const cluster::World& own_world,
                           int workers) const {
    given_options.machines = machines_of_servers(choices, own_world, workers);
    return given_options;
  }

  // Of `yoke ps`.
  void answer_question(const std::string& question, const cluster::Session::Answer& answer) {
    if (question == ps::kAskStatus)
      return server.ask_status([answer](const ps::ServerStatus& status) { answer(to_json(status).dump()); });
    if (question == ps::kAskLeave) return server.ask_to_leave(answer);
    if (question.starts_with(ps::kAskWorkerLeave))
      return server.ask_worker_to_leave(ps::worker_in(question), answer);
    if (question.starts_with(ps::kAskJoin))
      return answer(answer_joiner(choices, chosen_optimizer, messenger->backend(), question));
    throw CommError("a parameter server has no answer to '{}'", question);
  }

  Choices choices;
  optim::OptimizerOptions chosen_optimizer;
  cluster::World& world;
  PsLedger ledger;
  ps::ServerOptions options;
  std::unique_ptr<comm::Messenger> messenger;
  ps::Server server;
  std::shared_ptr<void> questions;
};

HostedServer::HostedServer(const Choices& choices, const optim::OptimizerOptions& optimizer,
                           std::filesystem::path out, cluster::World& world,
                           std::unique_ptr<comm::Messenger> messenger, int workers)
    : parts_(std::make_unique<Parts>(choices, optimizer, std::move(out), world, std::move(messenger),
                                     workers)) {}
HostedServer::~HostedServer() = default;

namespace {

constexpr double kHearsWhy = 1;  // seconds

// The others continue without this server, so its end is no failure.
bool was_evicted(const cluster::World& world, Deadline deadline) {
  const cluster::Failure& failure = *world.failure();
  while (!failure.set() && !deadline.passed()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  return failure.set() && failure.report().kind == "evicted";
}

}  // namespace

void HostedServer::finish() {
  cluster::World& world = parts_->world;
  try {
    parts_->server.run();
  } catch (const CommError&) {
    // One that was evicted while it was stopped sees that it has lost all others before it hears why.
    if (!was_evicted(world, Deadline::after(kHearsWhy))) throw;
  }
  parts_.reset();
  if (was_evicted(world, Deadline::after(0))) return log::warn("{}", world.failure()->report().what);
  world.failure()->check("serving parameters");
}

struct LocalServers::Parts {
  Parts(const Choices& choices, const optim::OptimizerOptions& optimizer, int workers)
      : places(places_of(choices, workers)), group(places.size(), "shm", places.late()) {
    ps::ServerOptions options = server_options(choices, optimizer, workers);
    for (int server = 0; server < static_cast<int>(choices.ps.servers); ++server) {
      views.push_back(std::make_unique<ps::ReplicaMessenger>(group.messenger(places.first_server() + server),
                                                             options.ranks));
      servers.push_back(std::make_unique<ps::Server>(*views.back(), options));
    }
  }
  const ps::Places places;
  std::vector<std::unique_ptr<ps::ReplicaMessenger>> views;
  std::vector<std::unique_ptr<ps::Server>> servers;
  ps::LocalGroup group;  // goes first: its threads call the servers
};

LocalServers::LocalServers(const Choices& choices, const optim::OptimizerOptions& optimizer, int workers)
    : parts_(std::make_unique<Parts>(choices, optimizer, workers)) {}
LocalServers::~LocalServers() = default;

comm::Messenger& LocalServers::messenger(int worker) {
  return parts_->group.messenger(worker);
}

void LocalServers::finish() {
  for (auto& server : parts_->servers) server->run();
}

void serve(const Choices& choices, const optim::OptimizerOptions& optimizer,
           const std::filesystem::path& out) {
  // Workers that are told to stop still need their servers, for a last checkpoint; who kills, kills.
  for (int signal : kStopSignals) std::signal(signal, SIG_IGN);
  cluster::Identity identity = cluster::identify_from_environment();
  cluster::JoinOptions options;
  options.expendable = expendable_ranks(choices, identity.world_size);
  options.late_ranks = late_ranks(choices, workers_beside_servers(choices, identity.world_size));
  options.replaceable = replicas_of(choices) > 0;
  cluster::World world(identity, options);
  if (world.life() > 0)
    throw ConfigError("rank {} is a parameter server: it cannot rejoin a running job.", world.rank());
  const int workers = workers_beside_servers(choices, world.size());
  world.take_role(fmt::format("parameter server {}", world.rank() - workers));
  HostedServer(choices, optimizer, out, world,
               ps::connect(world, choices.parallel.backend, places_of(choices, workers)), workers)
      .finish();
}

}  // namespace yoke::parallel
