#include "yoke/parallel/membership.h"

#include <fmt/format.h>

#include <csignal>

#include "yoke/cluster/identity.h"
#include "yoke/comm/connect_first.h"
#include "yoke/comm/summation/local_summation.h"
#include "yoke/parallel/registry.h"
#include "yoke/parallel/sync/hybrid/summation_ranks.h"
#include "yoke/parallel/sync/servers/late_server.h"
#include "yoke/parallel/sync/servers/server_ranks.h"
#include "yoke/ps/connect.h"

namespace yoke::parallel {
Membership::Membership(const JoinRequest& request) {
  const Choices& choices = request.choices;
  cluster::Identity identity = cluster::identify_from_environment();
  cluster::JoinOptions options;
  const bool served = has_servers(choices);
  if (served) options.expendable = expendable_ranks(choices, identity.world_size);
  if (served) options.late_ranks = late_ranks(choices, workers_beside_servers(choices, identity.world_size));
  options.elastic = request.elastic;
  options.elastic_min = request.elastic_min;
  options.prepare = request.prepare;
  job_ = std::make_unique<cluster::World>(identity, options);
  const bool in_parts = choices.parallel.pipeline * choices.parallel.tensor > 1;
  workers_ = workers_of(choices, job_->size());
  if ((!served || in_parts) && !job_->elastic()) connect(request);
  if (!served) return;
  const bool inside = choices.ps.place == "colocated";
  const bool hosts = inside && rank() < choices.ps.servers;
  job_->take_role(ps::role_name(replica_ranks(choices, workers_), rank()) +
                  (hosts ? fmt::format(" with parameter server {}", rank()) : ""));
  if (!inside) {
    messenger_ = ps::connect(*job_, choices.parallel.backend, places_of(choices, workers_));
    return;
  }
  ps::Colocated seats =
      ps::connect_colocated(*job_, static_cast<int>(choices.ps.servers), choices.parallel.backend);
  messenger_ = std::move(seats.worker);
  if (seats.server)
    server_ = std::make_unique<HostedServer>(choices, request.optimizer, request.out, *job_,
                                             std::move(seats.server), workers_);
}

Membership::Membership(const JoinRequest& request, cluster::JobContact job) {
  LateRank late = join_late(request.choices, request.optimizer, std::move(job), LateRank::kWorker);
  workers_ = late.places.workers;
  late_worker_ = late.number;
  job_ = std::move(late.world);
  messenger_ = std::move(late.messenger);
}

void Membership::connect(const JoinRequest& request) {
  const Choices& choices = request.choices;
  workers_ = workers_of(choices, job_->size());
  if (uses_spares(choices) && spares_may_pay(*job_, choices)) {
    everyone_ = connect_all(*job_, choices, request.deterministic);
    comm_ = make_workers(*everyone_, choices);
    return;
  }
  comm::ConnectOptions connect;
  connect.backend = choices.parallel.backend;
  connect.name = has_servers(choices) ? "workers" : "data";
  connect.measures_links = !request.deterministic;
  if (request.gpu && !job_->alone() && connect.backend == "auto") connect.backend = "nccl";
  comm_ = comm::connect_first(*job_, workers_, connect);
}

void Membership::regroup(const std::string& why) {
  comm_.reset();
  job_->regroup(why);
}

Membership::~Membership() = default;
Membership::Membership(Membership&&) noexcept = default;

LocalJob::LocalJob(const Choices& choices, const optim::OptimizerOptions& optimizer, int workers) {
  if (has_servers(choices)) servers_ = std::make_unique<LocalServers>(choices, optimizer, workers);
  if (uses_spares(choices))
    summation_ = std::make_unique<comm::LocalSummation>(
        comm::LocalSummation::Options{.workers = workers,
                                      .spares = static_cast<int>(choices.hybrid.servers),
                                      .part_bytes = choices.hybrid.part_bytes});
}

LocalJob::~LocalJob() = default;

comm::Messenger* LocalJob::messenger(int worker) const {
  return servers_ ? &servers_->messenger(worker) : nullptr;
}

std::unique_ptr<comm::Communicator> LocalJob::world(int worker) const {
  return summation_ ? summation_->worker(worker) : nullptr;
}

void LocalJob::finish() {
  if (summation_) summation_->finish();
  if (servers_) servers_->finish();
}

int workers_of(const Choices& choices, int ranks) {
  if (uses_spares(choices)) return workers_beside_spares(choices, ranks);
  return has_servers(choices) ? workers_beside_servers(choices, ranks) : ranks;
}

int ranks_of(const Choices& choices, int workers) {
  if (uses_spares(choices)) return ranks_with_spares(choices, workers);
  return has_servers(choices) ? ranks_with_servers(choices, workers) : workers;
}

namespace {

// A crash, or an error that a server reports, would only happen again.
bool lost_a_server(const cluster::FailureReport& failure, int workers) {
  const bool killed = failure.exit_code == 128 + SIGKILL;
  return failure.rank >= workers && (killed || failure.kind == "lost" || failure.kind == "stalled");
}

// With copies other servers take over; a server inside a worker is lost with it.
void restart_without_a_server(cluster::LaunchOptions& job, const ps::PsOptions& ps, int workers,
                              std::function<bool()> resumes) {
  const bool always = ps.on_server_loss == "restart";
  if (ps.on_server_loss == "stop" || ps.replicas > 0 || ps.place != "dedicated") return;
  if (!always && !resumes) return;
  job.max_restarts = static_cast<int>(ps.restarts);
  job.restarts_after = [=](const cluster::FailureReport& failure) {
    return lost_a_server(failure, workers) && (always || resumes());
  };
}

}  // namespace

cluster::LaunchOptions job_of(const Choices& choices, int workers, const std::vector<std::string>& words,
                              std::function<bool()> resumes) {
  const bool served = has_servers(choices);
  const int ranks = ranks_of(choices, workers);
  cluster::LaunchOptions job = cluster::own_job(ranks, words);
  if (!served) return job;
  job.expendable = expendable_ranks(choices, ranks);
  job.late_ranks = late_ranks(choices, workers);
  if (choices.ps.on_worker_loss == "restart") {
    job.rank_restarts = static_cast<int>(choices.ps.restarts);
    job.restartable = workers;  // what a lost server held is on other servers
  }
  restart_without_a_server(job, choices.ps, workers, std::move(resumes));
  return job;
}

bool has_servers(const Choices& choices) {
  return choose(choices).has("servers");
}

bool in_one_process(const Choices& choices) {
  return choose(choices).has("threads");
}

bool only_serves(const Choices& choices) {
  cluster::Identity identity = cluster::identify_from_environment();
  return identity.rank >= workers_of(choices, identity.world_size);
}

int serve_others(const JoinRequest& request) {
  if (uses_spares(request.choices))
    sum_gradients(request.choices, request.deterministic);
  else
    serve(request.choices, request.optimizer, request.out);
  return 0;
}

int serve_running_job(const JoinRequest& request, cluster::JobContact job,
                      const std::function<void(int server)>& joined) {
  return serve_late(request.choices, request.optimizer, request.out, std::move(job), joined);
}

}  // namespace yoke::parallel
