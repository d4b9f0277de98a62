#include "yoke/parallel/sync/servers/late_server.h"

#include <algorithm>
#include <csignal>
#include <nlohmann/json.hpp>
#include <sstream>

#include "yoke/base/error.h"
#include "yoke/base/stop_signals.h"
#include "yoke/cluster/identity.h"
#include "yoke/cluster/world.h"
#include "yoke/cluster/world_self.h"
#include "yoke/config/schema.h"
#include "yoke/parallel/sync/servers/server_ranks.h"
#include "yoke/ps/connect.h"
#include "yoke/ps/status.h"

namespace yoke::parallel {
namespace {

constexpr double kSettleSeconds = 10;
constexpr int kProtocol = 2;  // of messages of workers and servers; programs with another one do not join

// What servers of one job have in common. The keys have their own names, so that they are written as in the
// file that the run has saved, from which a server that joins reads them.
std::string described(Choices choices, optim::OptimizerOptions optimizer) {
  config::Schema schema;
  schema.section("ps", choices.ps);
  schema.section("train", optimizer);
  return schema.to_toml();
}

// The first line in which they differ.
std::string difference(const std::string& ours, const std::string& theirs) {
  std::istringstream a(ours), b(theirs);
  for (std::string one, other; std::getline(a, one);) {
    if (!std::getline(b, other)) other = "nothing";
    if (one != other) return fmt::format("the job has `{}`, who joins `{}`", one, other);
  }
  return "";
}

nlohmann::json parsed(const std::string& text) {
  nlohmann::json json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object())
    throw CommError("a rank that joins and a server that runs do not understand each other");
  return json;
}

cluster::JobContact::Rank a_server(cluster::JobContact& job, Deadline deadline) {
  for (const cluster::JobContact::Rank& rank : job.ranks(deadline))
    if (!rank.ended && rank.member.role.starts_with("parameter server")) return rank;
  throw ConfigError("no parameter server of this job is running: there is nothing to join.");
}

cluster::Identity identity_of(const cluster::JobAddress& job, int rank) {
  cluster::Identity identity;
  identity.source = "yoke ps join";
  identity.rank = rank;
  identity.world_size = rank + 1;
  identity.local_world_size = job.by_endpoint ? 1 : identity.world_size;
  identity.local_rank = job.by_endpoint ? 0 : rank;
  identity.endpoint = job.endpoint;
  identity.job_id = job.job_id;
  identity.generation = job.generation;
  return identity;
}

// Those of the kind that have joined, also if they have ended.
int64_t joined_before(cluster::JobContact& job, LateRank::Kind kind, Deadline deadline) {
  const char* role = kind == LateRank::kWorker ? "worker" : "parameter server";
  const std::vector<cluster::JobContact::Rank> all = job.ranks(deadline);
  return std::count_if(all.begin(), all.end(),
                       [&](const auto& rank) { return rank.member.role.starts_with(role); });
}

// Before a number is taken, which is not given again.
void check_reach(cluster::JobContact& job, const std::string& backend, Deadline deadline) {
  if (backend != "shm") return;
  for (const cluster::JobContact::Rank& rank : job.ranks(deadline))
    if (!rank.ended && rank.member.machine != cluster::machine_id())
      throw ConfigError(
          "this rank cannot join the job: it exchanges through shared memory of the machine {}. Start the "
          "job "
          "with parallel.backend = tcp.",
          rank.member.host);
}

// Of two ranks that ask for a number at once, one is refused when it joins with it, and asks again.
cluster::JobContact::Seat take_seat(cluster::JobContact& job, const Choices& choices, LateRank::Kind kind,
                                    LateRank& late, Deadline deadline) {
  const bool works = kind == LateRank::kWorker;
  for (;;) {
    const cluster::JobContact::Seat seat = job.seat(deadline);
    const int64_t most = works ? choices.ps.max_workers : choices.ps.max_servers;
    if (joined_before(job, kind, deadline) >= most)
      throw ConfigError("this {} cannot join the job: all {} places have been used (ps.max_{}s).",
                        works ? "worker" : "server", most, works ? "worker" : "server");
    late.places = places_of(choices, workers_beside_servers(choices, seat.at_start));
    late.number = works ? late.places.peer_of_worker(seat.rank) : seat.rank - late.places.workers;
    cluster::JoinOptions options;
    options.secret_file = job.address().secret_file;
    options.insecure = job.address().protection == net::to_string(net::Protection::kNone);
    options.encrypt = job.address().protection == net::to_string(net::Protection::kEncrypted);
    options.role = fmt::format("{} {}", works ? "worker" : "parameter server", late.number);
    options.replaceable = !works;
    try {
      late.world = std::make_unique<cluster::World>(identity_of(job.address(), seat.rank), options);
      return seat;
    } catch (const Error& error) {
      const bool taken = error.code() == ExitCode::kRendezvous && job.seat(deadline).rank != seat.rank;
      if (!taken || deadline.passed()) throw;
    }
  }
}

}  // namespace

std::string answer_joiner(const Choices& choices, const optim::OptimizerOptions& optimizer,
                          const std::string& backend, const std::string& question) {
  const nlohmann::json theirs = parsed(question.substr(std::string(ps::kAskJoin).size()));
  nlohmann::json answer = {{"backend", backend}, {"refusal", ""}};
  if (theirs.value("protocol", 0) != kProtocol)
    answer["refusal"] = fmt::format("it is of another version of yoke (messages {}, here {})",
                                    theirs.value("protocol", 0), kProtocol);
  else if (theirs.value("worker", false) && choices.ps.max_workers == 0)
    answer["refusal"] =
        "the set of workers is fixed (ps.max_workers = 0). Start the job with ps.max_workers to let workers "
        "join";
  else if (!theirs.value("worker", false) && choices.ps.max_servers == 0)
    answer["refusal"] =
        "the set of servers is fixed (ps.max_servers = 0). Start the job with ps.max_servers to let servers "
        "join";
  else if (const std::string other = difference(described(choices, optimizer), theirs.value("described", ""));
           !other.empty())
    answer["refusal"] = "it has another configuration: " + other;
  return answer.dump();
}

LateRank join_late(const Choices& choices, const optim::OptimizerOptions& optimizer, cluster::JobContact job,
                   LateRank::Kind kind) {
  const Deadline deadline = Deadline::after(kSettleSeconds);
  const bool works = kind == LateRank::kWorker;
  const nlohmann::json own = {
      {"protocol", kProtocol}, {"described", described(choices, optimizer)}, {"worker", works}};
  const int asked = a_server(job, deadline).member.rank;
  const nlohmann::json answer = parsed(job.ask(asked, ps::kAskJoin + own.dump(), deadline));
  if (const std::string refusal = answer.value("refusal", "no answer"); !refusal.empty())
    throw ConfigError("this {} cannot join the job: {}.", works ? "worker" : "server", refusal);
  check_reach(job, answer.value("backend", ""), deadline);
  LateRank late;
  const cluster::JobContact::Seat seat = take_seat(job, choices, kind, late, deadline);
  const int peer = works ? late.places.peer_of_worker(seat.rank) : late.places.peer_of_server(seat.rank);
  late.messenger = ps::connect_late(*late.world, answer.value("backend", ""), late.places, peer);
  return late;
}

int serve_late(const Choices& choices, const optim::OptimizerOptions& optimizer,
               const std::filesystem::path& out, cluster::JobContact job,
               const std::function<void(int server)>& joined) {
  for (int signal : kStopSignals) std::signal(signal, SIG_IGN);
  LateRank late = join_late(choices, optimizer, std::move(job), LateRank::kServer);
  HostedServer hosted(choices, optimizer, out, *late.world, std::move(late.messenger), late.places.workers);
  joined(late.number);
  hosted.finish();
  return late.number;
}

}  // namespace yoke::parallel
