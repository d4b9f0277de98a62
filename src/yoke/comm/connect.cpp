#include "yoke/comm/connect.h"

#include <unistd.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "yoke/base/error.h"
#include "yoke/base/random.h"
#include "yoke/base/text.h"
#include "yoke/cluster/launch_env.h"
#include "yoke/comm/connect_first.h"
#include "yoke/comm/hierarchical/hierarchical.h"
#include "yoke/comm/mpi/mpi.h"
#include "yoke/comm/nccl/nccl.h"
#include "yoke/comm/queue/queued_communicator.h"
#include "yoke/comm/shared/local.h"
#include "yoke/comm/shared/shm.h"
#include "yoke/comm/tcp/tcp.h"

namespace yoke::comm {
namespace {

using cluster::kWorldGroup;

// Of the first `ranks` ranks of the job.
struct Connection : ConnectOptions {
  int ranks = 0;
};

std::vector<cluster::Member> members_in(const cluster::World& world, const Connection& options) {
  std::vector<cluster::Member> members = world.members();
  members.resize(static_cast<size_t>(options.ranks));
  return members;
}

std::vector<std::string> machines_of(const cluster::World& world, const Connection& options) {
  std::vector<std::string> machines;
  for (const cluster::Member& member : members_in(world, options)) machines.push_back(member.machine);
  return machines;
}

std::string choose(const cluster::World& world, const Connection& options) {
  std::vector<std::string> machines = machines_of(world, options);
  size_t different = std::set<std::string>(machines.begin(), machines.end()).size();
  if (different == 1) return "shm";
  return different == machines.size() ? "tcp" : "hierarchical";
}

std::unique_ptr<Backend> make_shm(cluster::World& world, const std::vector<int>& ranks,
                                  const std::string& key) {
  ShmSetup setup;
  setup.rank = static_cast<int>(std::find(ranks.begin(), ranks.end(), world.rank()) - ranks.begin());
  setup.size = static_cast<int>(ranks.size());
  setup.key = key;
  setup.failure = world.failure();
  setup.timeout = world.options().join_timeout;
  cluster::Session& session = world.session();
  setup.put = [&session](const std::string& k, const std::string& v, Deadline d) { session.put(k, v, d); };
  setup.get = [&session](const std::string& k, Deadline d) { return session.get(k, d); };
  return make_shm_backend(setup);
}

std::unique_ptr<Backend> make_shm_of_all(cluster::World& world, const Connection& options) {
  std::map<std::string, int> machines;  // one rank of each
  for (const cluster::Member& member : members_in(world, options))
    machines.emplace(member.machine, member.rank);
  if (machines.size() > 1)
    throw ConfigError(
        "backend shm: ranks {} and {} are on different machines ({} and {}). Use auto, tcp or hierarchical.",
        machines.begin()->second, machines.rbegin()->second,
        world.members()[static_cast<size_t>(machines.begin()->second)].host,
        world.members()[static_cast<size_t>(machines.rbegin()->second)].host);
  std::vector<int> all(static_cast<size_t>(options.ranks));
  std::iota(all.begin(), all.end(), 0);
  return make_shm(world, all, "shm/world");
}

std::unique_ptr<Backend> make_tcp(cluster::World& world, const Connection& options) {
  TcpSetup setup;
  setup.rank = world.rank();
  setup.size = options.ranks;
  setup.group = kWorldGroup;
  setup.members = members_in(world, options);
  setup.acceptor = &world.acceptor();
  setup.ticket = world.ticket();
  setup.failure = world.failure();
  setup.measures_cost = options.measures_links;
  setup.spares = options.spares;
  setup.part_bytes = options.part_bytes;
  setup.elastic = world.elastic();
  return make_tcp_backend(setup);
}

std::unique_ptr<Backend> make_hierarchical(cluster::World& world, const Connection& options) {
  std::vector<std::string> machines = machines_of(world, options);
  MachineLayout layout = MachineLayout::of(world.rank(), machines);
  std::unique_ptr<Backend> flat = make_tcp(world, options);
  std::unique_ptr<Backend> local =
      make_shm(world, layout.neighbours(), fmt::format("shm/machine-{}", layout.machine()));
  std::unique_ptr<Backend> cross =
      split_cross(*flat, layout, kWorldGroup, Deadline::after(world.options().join_timeout));
  return make_hierarchical_backend(std::move(local), std::move(cross), std::move(flat), layout);
}

std::unique_ptr<Backend> make_mpi(cluster::World& world, const Connection& options) {
  if (options.ranks != world.size())
    throw ConfigError("backend mpi: it connects all {} ranks of the job, not the first {}. Use auto or tcp.",
                      world.size(), options.ranks);
  MpiSetup setup;
  setup.launcher = world.identity().source;
  setup.rank = world.rank();
  setup.size = world.size();
  setup.failure = world.failure();
  setup.timeout = world.options().timeout;
  return make_mpi_backend(setup);
}

std::unique_ptr<Backend> make_backend(cluster::World& world, const Connection& options);

std::unique_ptr<Backend> make_nccl(cluster::World& world, const Connection& options) {
  NcclSetup setup;
  setup.rank = world.rank();
  setup.size = options.ranks;
  setup.device = options.device;
  setup.local_rank = world.identity().local_rank;
  setup.failure = world.failure();
  setup.timeout = world.options().join_timeout;
  cluster::Session& session = world.session();
  setup.put = [&session](const std::string& k, const std::string& v, Deadline d) { session.put(k, v, d); };
  setup.get = [&session](const std::string& k, Deadline d) { return session.get(k, d); };
  Connection host = options;
  host.backend = "auto";
  setup.host = make_backend(world, host);
  return make_nccl_backend(setup);
}

using Maker = std::unique_ptr<Backend> (*)(cluster::World&, const Connection&);
constexpr std::pair<const char*, Maker> kBackends[] = {
    {"shm", make_shm_of_all}, {"tcp", make_tcp},   {"hierarchical", make_hierarchical},
    {"mpi", make_mpi},        {"nccl", make_nccl},
};

std::unique_ptr<Backend> make_backend(cluster::World& world, const Connection& options) {
  std::string name = options.backend == "auto" && !world.alone() ? choose(world, options) : options.backend;
  if (options.spares > 0 && name != "tcp")
    throw ConfigError("backend {}: ranks that only sum need tcp.", name);
  bool known = name == "auto";
  for (auto& [entry, make] : kBackends) {
    known = known || name == entry;
    if (name == entry && !world.alone()) return make(world, options);
  }
  if (!known) throw ConfigError("backend '{}' is unknown. Accepted: {}.", name, join(backend_names(), " "));
  return std::move(make_local_backends(1, world.failure()).front());
}

JobLink link_to(cluster::World& world) {
  std::string host = world.alone() ? "this machine" : world.members()[static_cast<size_t>(world.rank())].host;
  JobLink job;
  job.failure = world.failure();
  job.recorder = std::make_shared<FlightRecorder>(world.rank(), world.size(), host, ::getpid());
  job.flight_folder = world.options().flight_folder;
  if (job.flight_folder.empty())
    job.flight_folder = cluster::environment_variable("YOKE_FLIGHT_DIR").value_or("");
  if (world.alone()) return job;
  cluster::Session& session = world.session();
  job.entered = [&session](int64_t number) { session.progress(number, -1); };
  job.fail = [&session](const cluster::FailureReport& report, const cluster::Wait& wait) {
    session.fail(report, &wait);
  };
  job.watch = [&session](cluster::Session::WaitSource source) { return session.watch(std::move(source)); };
  job.look_at = [&session](const cluster::Wait& wait) { session.look_at(wait); };
  job.closed = [&session](uint64_t group, int size, int64_t operations) {
    session.close_group(group, size, operations);
  };
  job.who_is_behind = [&session](int64_t number) {
    return session.who_is_behind(number, Deadline::after(2));
  };
  return job;
}

}  // namespace

const std::vector<std::string>& backend_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all = {"auto"};
    for (auto& [name, make] : kBackends) all.push_back(name);
    return all;
  }();
  return names;
}

namespace {

uint64_t mark_of(int communicator) {
  return communicator == 0 ? kWorldGroup : derive_seed(kWorldGroup, static_cast<uint64_t>(communicator));
}

}  // namespace

std::unique_ptr<Communicator> connect_first(cluster::World& world, int ranks, const ConnectOptions& options) {
  world.check_links();
  GroupInfo group;
  group.name = options.name;
  group.rank = world.rank();
  group.size = ranks;
  group.id = mark_of(world.next_communicator());
  for (int rank = 0; rank < ranks; ++rank) group.ranks.push_back(rank);
  group.timeout = world.options().timeout;
  return make_queued(make_backend(world, Connection{options, ranks}), std::move(group), link_to(world));
}

std::unique_ptr<Communicator> connect(cluster::World& world, const ConnectOptions& options) {
  return connect_first(world, world.size(), options);
}

}  // namespace yoke::comm
