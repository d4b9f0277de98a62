// Implementation of the coordinator: one thread that owns all connections; the state is guarded by one mutex
// for callers from other threads.
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
#include "yoke/cluster/own_lateness.h"
#include "yoke/cluster/session_wire.h"
#include "yoke/net/gate.h"

namespace yoke::cluster {

struct Coordinator::Impl {
  Impl(const CoordinatorOptions& options, const net::JobTicket& ticket);
  ~Impl();

  static constexpr double kLookEvery = 0.1;  // seconds, at most

  // One control connection.
  struct Client {
    std::unique_ptr<net::Connection> connection;
    std::vector<std::byte> payload;   // of the frame being received
    bool entered = false;             // its join was accepted
    bool left = false;                // it has left since
    bool writing = false;             // the socket is full; polled for writing
    int rank = -1;                    // verified by the handshake; in later epochs, that of the epoch
    int seat = -1;                    // verified by the handshake
    std::optional<Member> joining;    // waits for the next epoch of a running elastic job
    std::optional<uint64_t> regroup;  // the request of a member that is ready for the next epoch
    size_t unsent = 0;                // bytes since the connection was last drained
    size_t waits = 0;                 // number of its entries in `waiters`
  };
  // What is known about a rank that has joined.
  struct RankState {
    double last_seen = 0;
    control::Progress progress;
    std::vector<Wait> waits;  // operations it has been in for long, as reported at `waits_at`
    double waits_at = 0;
    bool left = false;
    bool lost = false;
    bool evicted = false;  // has left, but its process may still run
    bool awaited = false;  // in the epoch that was taken up; has not returned yet
  };
  // A get() for a key that does not exist yet.
  struct Waiter {
    int fd;
    uint64_t request;
    int from = -1;  // the only rank that may put the value; -1: any
  };
  // A question of a program outside of the job, passed on to a rank.
  struct Question {
    int fd;            // of the asker
    uint64_t request;  // of the asker
    int rank_fd;       // of the rank that is asked
  };
  struct Value {
    std::string bytes;
    std::set<int> readers;  // ranks it is kept for; empty: permanent
  };

  // ---- the thread ----
  void serve();
  // One iteration: events of clients, new connections, timers, then dropping lost clients.
  void step(int timeout_ms);
  int timeout_ms(double now) const;
  void admit(std::unique_ptr<net::Connection> connection);
  void read_from(Client& client);
  // An invalid message costs the client its own connection, nothing else. False: it did.
  bool handle(Client& client, const net::FrameHeader& header);
  void flush(Client& client);
  void turn_away(Client& client, const std::string& sent);
  // Marks a client as lost; drop_lost() removes it at the end of the step.
  void lose(Client& client, const std::string& how);
  void drop_lost();
  void drop(int fd);
  // Timers: join timeout, missing ranks, heartbeats, stalled ranks, a due decision about the cause.
  void on_time(double now);
  void tell_who_is_missing(double now);
  std::string what_keeps_them_away() const;  // includes the next step
  void look_for_stalled(double now);
  // Ranks that are expendable and replaceable (coordinator_evictions.cpp).
  bool replaceable(size_t rank) const;
  void do_without(int rank, const std::string& why);
  void on_evicted(Client& client, uint64_t request, const control::Note& note);
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
  // Blames a rank that has left for requests that wait for a value of it.
  void blame_waits_for(int rank);
  void blame_early_end(int absent, const std::string& key, int waiting);
  // Values of exchange() are dropped once all their readers have read them or left.
  void has_read(const std::string& key, int rank);
  void reads_no_more(int rank);
  void on_ended(Client& client, uint64_t request, const control::Note& note);
  void add_report_of_launcher(const FailureReport& report);
  void on_fail(Client& client, uint64_t request, const control::Note& note);
  void on_leave(Client& client, uint64_t request, const control::Note& note);
  void on_role(Client& client, uint64_t request, const control::Note& note);
  void on_close(Client& client, uint64_t request, const control::Note& note);
  void on_waiting(Client& client, const control::Note& note);
  // Questions of programs outside of the job (coordinator_questions.cpp).
  void on_outsider(Client& client, uint64_t request, const std::string& verb, const control::Note& note);
  void on_seats(Client& client, uint64_t request, const control::Note& note);
  void on_question(Client& client, uint64_t request, const control::Note& note);
  void on_answer(Client& client, const control::Note& note);
  nlohmann::json describe_ranks() const;
  // Ranks that join a running job (coordinator_late.cpp).
  void on_seat(Client& client, uint64_t request);
  std::string why_no_seat() const;
  bool takes_seat(const Member& member, int world_size) const;
  void add_late(Member member);
  void forget_questions(int fd);
  std::optional<FailureReport> early_end_of(const Wait& wait, int waiting) const;
  void mention_slow(const Wait& wait, int waiting, double now);
  std::string name_of(int rank) const;  // with its role, if any
  std::string behind(int64_t operation) const;
  void send(Client& client, net::FrameType type, uint64_t request, net::Bytes bytes);
  void reply(Client& client, uint64_t request, const nlohmann::json& head, std::string_view value = {});
  void learn_traits(const JobTraits& traits);
  bool has_ended(size_t rank) const;
  bool may_come_back(const Member& member, int world_size) const;
  std::vector<std::byte> list_of_members() const;
  void form();
  void form_first_epoch();
  void fail_forming(const std::string& why);
  // Stores the cause and sends it to all ranks.
  void broadcast_failure(const FailureReport& report);
  void rank_lost(int rank, const std::string& how);
  FailureReport complete(FailureReport report) const;
  std::vector<int> left_ranks() const;

  // ---- epochs of an elastic job (coordinator_epochs.cpp) ----
  bool elastic() const { return options.elastic_min > 0; }
  bool in_epoch() const { return elastic() && formed; }
  // `ready`: what takes long is done; before that the members are not told.
  void on_late_join(Client& client, uint64_t request, Member member, bool ready);
  void on_regroup(Client& client, uint64_t request, const control::Note& note);
  // Members found links that are cut: evicts the fewest such that the rest is connected.
  void on_cut_links(Client& client, uint64_t request, const control::Note& note);
  // ---- a running job of a coordinator that is gone (coordinator_returns.cpp) ----
  void on_return(Client& client, uint64_t request, const control::Note& note);
  void take_up(const Epoch& running);
  void seat_returned(Client& client);
  void drop_predecessor(const Client& client);
  bool awaits_returns() const;
  void look_at_returns(double now);
  void replace_awaited(int rank);
  // The members have to regroup. Evicts a culprit that is still connected but stalled.
  void end_epoch(const FailureReport& cause);
  void evict(int rank, const std::string& why);
  // Tells a rank why the job continues without it, and disconnects it.
  void dismiss(int rank, const std::string& what);
  void abort_all(const FailureReport& report);
  // Starts the next epoch once everybody who is left is ready.
  void advance_epoch();
  void start_epoch(const std::vector<Client*>& members);
  bool has_advanced();
  FailureReport too_few(size_t left) const;
  FailureReport no_progress() const;
  void fail_for_good(FailureReport report);
  void look_at_regrouping(double now);
  void count_losses();
  bool is_over() const;
  void turn_joiners_away();
  int rank_of_seat(int seat) const;  // -1: not in this epoch
  void tell_of_joiner();
  bool expendable(size_t rank) const { return rank < options.expendable.size() && options.expendable[rank]; }

  CoordinatorOptions options;
  net::Gate gate;
  net::Address address;
  net::Descriptor epoll;
  net::Descriptor wake;
  mutable std::mutex mutex;
  // Guarded by `mutex` from here on.
  bool stopping = false;
  std::map<int, std::unique_ptr<Client>> clients;  // by descriptor
  std::map<int, std::string> lost;                 // by descriptor: the reason; dropped at the end of a step
  Roll roll;
  std::vector<RankState> ranks;
  bool formed = false;
  std::string refusal;  // why this job will not form
  std::map<std::string, Value> values;
  size_t stored = 0;  // bytes of keys and values
  std::map<std::string, std::vector<Waiter>> waiters;
  std::map<int64_t, Question> questions;
  int64_t next_question = 1;
  Departures departures;
  double next_mention = 0;  // earliest time for the next line about a slow operation
  Blame blame;
  std::shared_ptr<const FailureReport> failure;
  Epoch epoch;              // of an elastic job; members as of its start
  int next_seat = 0;        // for processes that join the running job
  bool regrouping = false;  // the epoch has ended, the next has not begun
  double regroup_started = 0;
  double returns_end = 0;   // until then, members of the epoch that was taken up may return
  std::string regroup_why;  // what the first member said that asked to
  int fruitless = 0;        // epochs in a row without progress or change
  int64_t newest_step = -1;
  FailureReport epoch_cause;  // of its end; empty kind: none, ranks agreed on it
  std::vector<bool> counted;  // losses, by rank
  double started;
  double next_beat = 0;
  double next_news = 0;
  OwnLateness own_lateness{kLookEvery};
  std::vector<int> told_missing;
  std::thread thread;
};

}  // namespace yoke::cluster
