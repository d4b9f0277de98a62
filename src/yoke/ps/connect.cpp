#include "yoke/ps/connect.h"

#include <condition_variable>
#include <exception>
#include <map>
#include <mutex>
#include <set>
#include <thread>

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
    throw ConfigError("backend '{}': parameter servers talk over shm or tcp.", backend);
}

}  // namespace

// What ranks that are threads tell each other before they are connected.
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
      throw CommError("connecting threads: '{}' was not told", key);
    return values_[key];
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string> values_;
};

std::unique_ptr<comm::Messenger> connect(cluster::World& world, const std::string& backend) {
  std::set<std::string> machines;
  for (const cluster::Member& member : world.members()) machines.insert(member.machine);
  std::string name = backend == "auto" ? (machines.size() == 1 ? "shm" : "tcp") : backend;
  check_backend(name);
  if (name == "shm") {
    if (machines.size() > 1)
      throw ConfigError("backend shm: the ranks are on {} machines. Use auto or tcp.", machines.size());
    comm::ShmMessengerSetup setup;
    fill(setup, world.rank(), world.size(), world.failure(), world.options().join_timeout, world.life());
    cluster::Session& session = world.session();
    setup.key = "ps/messages";
    setup.put = [&session](const std::string& k, const std::string& v, Deadline d) { session.put(k, v, d); };
    setup.get = [&session](const std::string& k, Deadline d) { return session.get(k, d); };
    return comm::make_shm_messenger(setup);
  }
  comm::TcpMessengerSetup setup;
  fill(setup, world.rank(), world.size(), world.failure(), world.options().join_timeout, world.life());
  setup.group = kGroup;
  setup.members = world.members();
  setup.acceptor = &world.acceptor();
  setup.ticket = world.ticket();
  return comm::make_tcp_messenger(setup);
}

struct LocalGroup::Parts {
  LocalBoard board;
  net::JobTicket ticket;
  std::shared_ptr<cluster::Failure> failure = std::make_shared<cluster::Failure>();
  std::vector<std::unique_ptr<net::Acceptor>> acceptors;
  std::vector<cluster::Member> members;

  std::string backend;

  std::unique_ptr<comm::Messenger> make(int rank, int size, int life) {
    if (backend == "tcp") {
      comm::TcpMessengerSetup setup;
      fill(setup, rank, size, failure, kLocalSeconds, life);
      setup.group = kGroup;
      setup.members = members;
      setup.acceptor = acceptors[static_cast<size_t>(rank)].get();
      setup.ticket = ticket;
      return comm::make_tcp_messenger(setup);
    }
    comm::ShmMessengerSetup setup;
    fill(setup, rank, size, failure, kLocalSeconds, life);
    setup.put = [this](const std::string& key, const std::string& value, Deadline) { board.put(key, value); };
    setup.get = [this](const std::string& key, Deadline deadline) { return board.get(key, deadline); };
    return comm::make_shm_messenger(setup);
  }
};

LocalGroup::LocalGroup(int size, const std::string& backend)
    : parts_(std::make_unique<Parts>()),
      messengers_(static_cast<size_t>(size)),
      lives_(static_cast<size_t>(size), 0) {
  check_backend(backend);
  parts_->backend = backend;
  parts_->ticket.job_id = "threads";
  for (int rank = 0; backend == "tcp" && rank < size; ++rank) {
    parts_->acceptors.push_back(
        std::make_unique<net::Acceptor>(net::parse_address("127.0.0.1:0"), parts_->ticket));
    parts_->members.push_back({rank, "this machine", "", 0, parts_->acceptors.back()->address().text(), ""});
  }
  std::mutex mutex;
  std::exception_ptr first;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
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
  messengers_[index] = parts_->make(rank, static_cast<int>(messengers_.size()), ++lives_[index]);
}

}  // namespace yoke::ps
