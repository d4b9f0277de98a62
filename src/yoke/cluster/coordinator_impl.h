// The coordinator's inside: one thread that owns all connections, and state under one mutex for those who
// ask.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "yoke/cluster/coordinator.h"
#include "yoke/cluster/coordinator_blame.h"
#include "yoke/cluster/coordinator_roll.h"
#include "yoke/cluster/session_wire.h"
#include "yoke/net/gate.h"

namespace yoke::cluster {

struct Coordinator::Impl {
  Impl(const CoordinatorOptions& options, const net::JobTicket& ticket);
  ~Impl();

  // One control connection.
  struct Client {
    std::unique_ptr<net::Connection> connection;
    std::vector<std::byte> payload;  // of the frame that is arriving
    bool entered = false;            // its join was accepted
    bool left = false;               // after that it said goodbye
    bool writing = false;            // the socket is full: wait until it takes more
    int rank = -1;                   // as proven by the handshake
    size_t unsent = 0;               // bytes since all was sent last
    size_t waits = 0;                // entries of `waiters`
  };
  struct RankState {
    double last_seen = 0;
    control::Progress progress;
    std::vector<Wait> waits;  // what it has been in for long, as it said at `waits_at`
    double waits_at = 0;
    bool left = false;
    bool lost = false;
  };
  struct Waiter {
    int fd;
    uint64_t request;
  };
  struct Value {
    std::string bytes;
    std::set<int> readers;  // ranks it is kept for; empty: it is kept for good
  };

  // ---- the thread ----
  void serve();
  void step(int timeout_ms);
  int timeout_ms(double now) const;
  void admit(std::unique_ptr<net::Connection> connection);
  void read_from(Client& client);
  // What a client sends costs at most its own connection. False: it did.
  bool handle(Client& client, const net::FrameHeader& header);
  void flush(Client& client);
  void turn_away(Client& client, const std::string& sent);
  void lose(Client& client, const std::string& how);
  void drop_lost();
  void drop(int fd);
  void on_time(double now);
  void tell_who_is_missing(double now);
  void look_for_stalled(double now);
  void beat(double now);
  void settle(double now, bool at_once = false);
  void say_goodbye();

  // ---- requests ----
  void on_frame(Client& client, const net::FrameHeader& header);
  void on_request(Client& client, uint64_t request, const control::Note& note);
  void on_join(Client& client, uint64_t request, const control::Note& note);
  void on_put(Client& client, uint64_t request, const control::Note& note);
  void on_get(Client& client, uint64_t request, const control::Note& note);
  void on_forget(Client& client, const control::Note& note);
  void store(const std::string& key, Value value);
  void has_read(const std::string& key, int rank);
  void reads_no_more(int rank);
  void on_ended(Client& client, uint64_t request, const control::Note& note);
  void add_report_of_launcher(const FailureReport& report);
  void on_fail(Client& client, uint64_t request, const control::Note& note);
  void on_leave(Client& client, uint64_t request, const control::Note& note);
  void on_role(Client& client, uint64_t request, const control::Note& note);
  void on_close(Client& client, uint64_t request, const control::Note& note);
  void on_waiting(Client& client, const control::Note& note);
  std::optional<FailureReport> early_end_of(const Wait& wait, int waiting) const;
  void mention_slow(const Wait& wait, int waiting, double now);
  std::string name_of(int rank) const;  // with its role, where it has one
  std::string behind(int64_t operation) const;
  void send(Client& client, net::FrameType type, uint64_t request, net::Bytes bytes);
  void reply(Client& client, uint64_t request, const nlohmann::json& head, std::string_view value = {});
  bool has_ended(size_t rank) const;
  bool may_come_back(const Member& member, int world_size) const;
  std::vector<std::byte> list_of_members() const;
  void form();
  void fail_forming(const std::string& why);
  void broadcast_failure(const FailureReport& report);
  void rank_lost(int rank, const std::string& how);
  FailureReport complete(FailureReport report) const;
  std::vector<int> left_ranks() const;
  bool expendable(size_t rank) const { return rank < options.expendable.size() && options.expendable[rank]; }

  CoordinatorOptions options;
  net::Gate gate;
  net::Address address;
  net::Descriptor epoll;
  net::Descriptor wake;
  mutable std::mutex mutex;
  // Everything below under the mutex.
  bool stopping = false;
  std::map<int, std::unique_ptr<Client>> clients;  // by descriptor
  std::map<int, std::string> lost;                 // by descriptor: how; dropped at the end of a step
  Roll roll;
  std::vector<RankState> ranks;
  bool formed = false;
  std::string refusal;  // why this job will not form
  std::map<std::string, Value> values;
  size_t stored = 0;  // bytes of keys and values
  std::map<std::string, std::vector<Waiter>> waiters;
  Departures departures;
  double next_mention = 0;  // of a slow operation
  Blame blame;
  std::shared_ptr<const FailureReport> failure;
  double started;
  double next_beat = 0;
  double next_news = 0;
  double last_step = 0;
  std::vector<int> told_missing;
  std::thread thread;
};

}  // namespace yoke::cluster
