#include "yoke/ps/connect.h"

#include <condition_variable>
#include <exception>
#include <future>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <thread>
#include <utility>

#include "yoke/base/error.h"
#include "yoke/comm/messages/messengers.h"
#include "yoke/ps/messages.h"

namespace yoke::ps {
namespace {

constexpr uint64_t kGroup = 0x7073;  // "ps"
constexpr double kLocalSeconds = 60;

template <class Setup>
void fill(Setup& setup, int rank, int size, std::shared_ptr<cluster::Failure> failure, double timeout,
          int life) {
  setup.may_return = true;
  setup.life = life;
  setup.rank = rank;
  setup.size = size;
  setup.kinds = kKinds;
  setup.failure = std::move(failure);
  setup.timeout = timeout;
}

void check_backend(const std::string& backend) {
  if (backend != "shm" && backend != "tcp")
    throw ConfigError("backend '{}': parameter servers support shm and tcp.", backend);
}

bool is_server(const cluster::Member& member) {
  return member.role.starts_with("parameter server");
}

}  // namespace

// Key-value store for ranks that are threads, used until they are connected.
class LocalBoard {
 public:
  void put(const std::string& key, const std::string& value) {
    std::lock_guard lock(mutex_);
    values_[key] = value;
    changed_.notify_all();
  }
  std::string get(const std::string& key, const Deadline& deadline) {
    std::unique_lock lock(mutex_);
    auto there = [&] { return values_.count(key) > 0; };
    if (!changed_.wait_for(lock, std::chrono::duration<double>(deadline.left()), there))
      throw CommError("connecting threads: '{}' was not set", key);
    return values_[key];
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string> values_;
};

namespace {

// Creates the messengers of ranks of this process; several ranks of a messenger may be one rank of the job.
class Seats {
 public:
  Seats(cluster::World& world, std::vector<cluster::Member> members, const std::string& backend)
      : world_(world), members_(std::move(members)) {
    std::set<std::string> machines;
    for (const cluster::Member& member : members_) machines.insert(member.machine);
    backend_ = backend == "auto" ? (machines.size() == 1 ? "shm" : "tcp") : backend;
    check_backend(backend_);
    if (backend_ == "shm" && machines.size() > 1)
      throw ConfigError("backend shm: the ranks are on {} machines. Use auto or tcp.", machines.size());
  }

  // By place. Who joined earlier has one of the two places of its rank.
  void place(const Places& places) {
    const std::vector<cluster::Member> ranks = std::exchange(members_, {});
    for (int peer = 0; peer < places.size(); ++peer) {
      cluster::Member member;
      member.rank = places.rank_of(peer);
      const auto rank = static_cast<size_t>(member.rank);
      const bool here = rank < ranks.size() &&
                        (!places.is_late(peer) || is_server(ranks[rank]) == (peer >= places.first_server()));
      members_.push_back(here ? ranks[rank] : member);
    }
    late_ = places.late();
    places_ = places;
  }

  std::unique_ptr<comm::Messenger> take(int rank) const {
    auto size = static_cast<int>(members_.size());
    double timeout = world_.options().join_timeout;
    if (backend_ == "shm") {
      comm::ShmMessengerSetup setup;
      fill(setup, rank, size, world_.failure(), timeout, world_.life());
      setup.late = late_;
      setup.watch_forsaken = watch_evictions();
      cluster::Session& session = world_.session();
      setup.key = "ps/messages";
      setup.put = [&session](const std::string& k, const std::string& v, Deadline d) {
        session.put(k, v, d);
      };
      setup.get = [&session](const std::string& k, Deadline d) { return session.get(k, d); };
      return comm::make_shm_messenger(setup);
    }
    comm::TcpMessengerSetup setup;
    fill(setup, rank, size, world_.failure(), timeout, world_.life());
    setup.late = late_;
    setup.watch_forsaken = watch_evictions();
    setup.group = kGroup;
    setup.members = members_;
    setup.acceptor = &world_.acceptor();
    setup.ticket = world_.ticket();
    return comm::make_tcp_messenger(setup);
  }

 private:
  // Of the job, as the messenger numbers them.
  std::function<std::shared_ptr<void>(comm::MessengerSetup::Forsaken)> watch_evictions() const {
    if (world_.alone() || !places_) return {};
    return [&session = world_.session(), places = *places_](const comm::MessengerSetup::Forsaken& forsake) {
      return session.watch_evictions([places, forsake](int rank, const std::string& why) {
        for (int peer = 0; peer < places.size(); ++peer)
          if (places.rank_of(peer) == rank) forsake(peer, why);
      });
    };
  }

  cluster::World& world_;
  std::vector<cluster::Member> members_;
  std::vector<bool> late_;
  std::optional<Places> places_;  // none: peers are ranks, and servers have no copies
  std::string backend_;
};

}  // namespace

std::unique_ptr<comm::Messenger> connect(cluster::World& world, const std::string& backend,
                                         const Places& places) {
  const int rank = world.rank();
  return connect_late(world, backend, places,
                      rank < places.workers ? places.peer_of_worker(rank) : places.peer_of_server(rank));
}

std::unique_ptr<comm::Messenger> connect(cluster::World& world, const std::string& backend) {
  return Seats(world, world.members(), backend).take(world.rank());
}

std::unique_ptr<comm::Messenger> connect_late(cluster::World& world, const std::string& backend,
                                              const Places& places, int peer) {
  Seats seats(world, world.members(), backend);
  seats.place(places);
  return seats.take(peer);
}

Colocated connect_colocated(cluster::World& world, int servers, const std::string& backend) {
  YOKE_CHECK(servers <= world.size(), "{} servers in {} processes", servers, world.size());
  if (world.alone()) {
    LocalGroup both(2);
    return {both.take(0), both.take(1)};
  }
  std::vector<cluster::Member> members = world.members();
  for (int server = 0; server < servers; ++server) members.push_back(members[static_cast<size_t>(server)]);
  Seats seats(world, std::move(members), backend);
  Colocated both;
  // Connecting is collective: the worker and the server of this process must connect concurrently.
  std::future<std::unique_ptr<comm::Messenger>> server;
  if (world.rank() < servers)
    server = std::async(std::launch::async, [&] { return seats.take(world.size() + world.rank()); });
  both.worker = seats.take(world.rank());
  if (server.valid()) both.server = server.get();
  return both;
}

struct LocalGroup::Parts {
  LocalBoard board;
  net::JobTicket ticket;
  std::shared_ptr<cluster::Failure> failure = std::make_shared<cluster::Failure>();
  std::vector<std::unique_ptr<net::Acceptor>> acceptors;
  std::vector<cluster::Member> members;

  std::string backend;
  std::vector<bool> late;

  std::unique_ptr<comm::Messenger> make(int rank, int size, int life) {
    if (backend == "tcp") {
      comm::TcpMessengerSetup setup;
      fill(setup, rank, size, failure, kLocalSeconds, life);
      setup.late = late;
      setup.group = kGroup;
      setup.members = members;
      setup.acceptor = acceptors[static_cast<size_t>(rank)].get();
      setup.ticket = ticket;
      return comm::make_tcp_messenger(setup);
    }
    comm::ShmMessengerSetup setup;
    fill(setup, rank, size, failure, kLocalSeconds, life);
    setup.late = late;
    setup.put = [this](const std::string& key, const std::string& value, Deadline) { board.put(key, value); };
    setup.get = [this](const std::string& key, Deadline deadline) { return board.get(key, deadline); };
    return comm::make_shm_messenger(setup);
  }
};

LocalGroup::LocalGroup(int size, const std::string& backend, std::vector<bool> late)
    : parts_(std::make_unique<Parts>()),
      messengers_(static_cast<size_t>(size)),
      lives_(static_cast<size_t>(size), 0) {
  check_backend(backend);
  parts_->backend = backend;
  parts_->ticket.job_id = "threads";
  late.resize(static_cast<size_t>(size), false);
  parts_->late = std::move(late);
  for (int rank = 0; backend == "tcp" && rank < size; ++rank) {
    parts_->acceptors.push_back(
        std::make_unique<net::Acceptor>(net::parse_address("127.0.0.1:0"), parts_->ticket));
    parts_->members.push_back({rank, "this machine", "", 0, parts_->acceptors.back()->address().text(), ""});
    if (parts_->late[static_cast<size_t>(rank)]) parts_->members.back().address.clear();
  }
  std::mutex mutex;
  std::exception_ptr first;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    if (parts_->late[static_cast<size_t>(rank)]) continue;
    threads.emplace_back([&, rank] {
      try {
        messengers_[static_cast<size_t>(rank)] = parts_->make(rank, size, 0);
      } catch (const std::exception&) {
        std::lock_guard lock(mutex);
        if (!first) first = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (first) std::rethrow_exception(first);
}

LocalGroup::~LocalGroup() = default;

void LocalGroup::open_again(int rank) {
  auto index = static_cast<size_t>(rank);
  YOKE_CHECK(!messengers_[index], "rank {} is not closed", rank);
  if (parts_->late[index] && !parts_->acceptors.empty())
    parts_->members[index].address = parts_->acceptors[index]->address().text();
  messengers_[index] = parts_->make(rank, static_cast<int>(messengers_.size()), ++lives_[index]);
}

}  // namespace yoke::ps
