// A parameter server: stores ranges of the parameters and updates them as the scheduler decides.
//
// The first server also runs the scheduler. Everything runs on the messenger's thread and never blocks.
// Memory: parameters, one accumulator and the optimizer's state, independent of the number of workers, plus
// the ranges in flight. If gradients are added in worker order (kInOrderFlag), early ones are held and
// answered only when it is their turn; a worker has at most kPushesAhead of them in flight, which bounds the
// memory.
//
// Invalid messages (wrong range, shape or version, NaN) are refused with a text that names the sender, and
// nothing is applied; so are messages larger than their kind allows (beyond MessengerSetup::largest the
// sender is disconnected). Resends are recognised by worker, minibatch and range, or outside of updates by
// their number, and are applied once.
//
// With replicas (ps/succession.h), each server also holds copies of the ranges of the servers before it.
// Every change passes down the chain of servers that hold the range (ps/chain.h, ps/entries.h), after
// aggregation: an update once, whatever the number of workers. No reply exposes or acknowledges a change
// before it is safe. Under rules whose workers would wait for each other's updates then (server.cpp),
// gradients pass down the chain one by one instead. A request for a range whose server is not known to be
// lost yet waits until it is.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "yoke/comm/messenger.h"
#include "yoke/ps/chain.h"
#include "yoke/ps/clip.h"
#include "yoke/ps/copied_scheduler.h"
#include "yoke/ps/range_store.h"
#include "yoke/ps/replica_ranks.h"
#include "yoke/ps/sandblaster/vector_service.h"
#include "yoke/ps/scheduler.h"
#include "yoke/ps/server_clock.h"
#include "yoke/ps/sparse/tables.h"
#include "yoke/ps/status.h"
#include "yoke/ps/succession.h"
#include "yoke/ps/taken_numbers.h"
#include "yoke/ps/worker_end.h"

namespace yoke::ps {

struct ServerOptions {
  int workers = 1;                      // with places for those that join
  int workers_at_start = 0;             // 0: all, and the set is fixed
  int servers = 1;                      // with places for those that join
  int at_start = 0;                     // servers that are there at the start; 0: all, and the set is fixed
  int replicas = 0;                     // copies of each range and table on other servers
  std::vector<std::string> machines{};  // of the servers at the start, as in Succession
  double timeout = 300;                 // seconds for a copy to acknowledge a change
  ReplicaRanks ranks{};                 // of the job, for messages; by default each worker is a rank
  MakeUpdater make_updater;
  // Rules of sparse tables, by their number. Empty: there are none.
  std::function<std::shared_ptr<const sparse::Rule>(int table)> make_rule{};
  double rule_lr = 1;                                            // of pushes to tables outside of updates
  std::optional<sandblaster::SandblasterOptions> sandblaster{};  // L-BFGS; empty: it is refused
  SchedulerOptions scheduler;                                    // used by the first server
  // Gradients that a worker may push before it pulls again: more than one with Downpour.
  int64_t pushes_between_pulls = 1;
  // First server: formats the statistics when a worker requests them.
  std::function<std::string(const Accounting&, int64_t version, int64_t k)> report;
};

class Server {
 public:
  // Starts serving; create it before the first request reaches the messenger, which must be destroyed before
  // the server. Throws ConfigError.
  Server(comm::Messenger& messenger, ServerOptions options);

  // Blocks until every worker has left or is lost, or this server has left. Throws CommError if another
  // server is lost and no copy of its ranges is left, or if all workers were lost.
  void run();

  struct Numbers {
    size_t bytes_held = 0;  // parameters, accumulators and optimizer state
    size_t parameter_bytes = 0;
    size_t most_early_bytes = 0;  // peak size of gradients held because they arrived early
    int64_t duplicates = 0;       // resends that were recognised
    int64_t refused = 0;
    int64_t payload_bytes = 0;     // pushed and pulled
    int64_t pushed_bytes = 0;      // of these
    int64_t replicated_bytes = 0;  // sent to copies of ranges
    int64_t servers_lost = 0;
    sparse::Tables::Numbers tables{};
    double cpu_seconds = 0;  // of the serving thread, until the last worker left
  };
  Numbers numbers() const;  // after run(), or on the messenger's thread

  // Both call `answer` on the messenger's thread. Any thread.
  void ask_status(std::function<void(const ServerStatus&)> answer);
  // Leaves the job while training continues: others take over, and run() returns. `refusal`: why it cannot;
  // empty: it leaves.
  void ask_to_leave(std::function<void(const std::string& refusal)> answer);
  // Lets a worker leave the job while training continues, likewise. Only the server of the scheduler can.
  void ask_worker_to_leave(int worker, std::function<void(const std::string& refusal)> answer);

 private:
  // An update that was decided but is not applied by all ranges yet.
  struct Decided {
    UpdateHead head;
    std::vector<Contributor> from;
    size_t ranges_left = 0;  // ranges that have not applied it, copies included
    // With clipping:
    std::vector<size_t> summed{};  // by share: ranges that have all its gradients
    std::vector<bool> told{};      // by share: the sum of squares was sent to the scheduler
    std::optional<double> factor{};
    double since = 0;  // time of the decision
    bool is_done() const { return ranges_left == 0 && (head.clip_norm <= 0 || factor); }
  };
  struct WaitingPull {
    int from;
    PullHead head;
    comm::Messenger::Answer answer;
  };
  struct HeldPush {
    int from;
    int64_t life;
    PushHead head;
    std::vector<std::byte> payload;
    comm::Messenger::Answer answer;  // empty: already answered
    bool in_order() const { return (head.flags & kInOrderFlag) != 0; }
  };
  struct WaitingFetch {
    int from;
    FetchHead head;
    comm::Messenger::Answer answer;
  };
  struct Unanswered {
    int from;
    int64_t life;
    int64_t sequence;
    comm::Messenger::Answer answer;
  };
  struct Share;
  // A range and the requests that wait for it.
  struct Slot {
    RangeStore store;
    Share* share = nullptr;
    int64_t updates = 0;    // applied
    int64_t shortfall = 0;  // accepted gradients of lost workers that will never arrive
    std::vector<WaitingPull> pulls{};
    std::deque<HeldPush> held{};
    std::vector<int> added{};  // workers whose gradients of the next update were added in order
    std::vector<WaitingFetch> fetches{};
    bool measure = false;            // a worker wants the norm of the next update
    std::optional<double> summed{};  // sum of squares of the next update, complete and waiting to be clipped
    double square = -1;              // of the last update, see PullReply
    bool sum_copied = false;         // copies have the sum of the next update
    int64_t entry = 0;               // last one of the chain that concerns this range
    std::vector<Unanswered> unanswered{};  // pushes whose gradients no copy has yet
    bool filled = true;                    // false: a copy that has not arrived yet
  };
  // A copy of a home's ranges is sent to another server (server_copies.cpp).
  struct Copying {
    int server = 0;
    bool ending = false;  // all was sent
    int64_t attempt = 0;
    size_t next = 0;  // slot
    size_t in_flight = 0;
    sparse::Tables::Cursor rows{};
  };
  // The ranges of one home: served, or held as a copy.
  struct Share {
    int home = 0;
    size_t index = 0;  // in shares_
    bool serves = false;
    std::vector<std::unique_ptr<Slot>> slots{};
    std::vector<TakenNumbers> taken{};  // by worker: numbers of pushes outside of updates
    std::unique_ptr<Chain> chain{};
    std::unique_ptr<sparse::Tables> tables{};
    bool complete = true;  // false: this server gets a copy
    std::optional<Copying> copying{};
    int64_t attempts = 0;                           // of copying
    std::vector<comm::Messenger::Answer> parked{};  // of requests that are to be sent again
  };
  // The target of a move asks the others to agree.
  struct Claim {
    Succession::Move move;
    comm::Messenger::Answer answer;  // to the owner
    int left = 1;                    // that have not agreed
    bool refused = false;
  };
  // A request for a home whose server is not known to be lost.
  struct Postponed {
    int from;
    comm::Message request;
    std::vector<std::byte> payload;
    comm::Messenger::Answer answer;
  };
  struct NotServedYet {};  // thrown, to postpone a request
  struct MovedAway {       // thrown: another server serves this home
    Succession::Move move;
  };

  ServerStatus status() const;  // server_status.cpp
  ServerTime time();            // likewise
  void handle(int from, const comm::Message& request, const comm::Messenger::Answer& answer);
  void handle_kind(int from, const comm::Message& request, const comm::Messenger::Answer& answer);
  void check_sender(int from, uint16_t kind) const;
  void check_size(int from, const comm::Message& head, size_t bytes) const;
  size_t most_bytes(uint16_t kind) const;
  void open(int from, const comm::Message& request, const comm::Messenger::Answer& answer);
  void open_layout(int from, const OpenHead& head, const std::vector<int64_t>& tensors);
  void lay_out(const OpenHead& head, Sharding sharding);
  std::unique_ptr<Slot> make_slot(size_t number, const Range& range, DataType type, Share& share) const;
  void assign(int from, const comm::Message& request, const comm::Messenger::Answer& answer);
  void push(int from, const comm::Message& request, const comm::Messenger::Answer& answer, bool pulls);
  bool is_new_push(Share& share, int from, int64_t number, int64_t settled);
  void push_gradient(Slot& slot, int from, const PushHead& head, std::span<const std::byte> payload,
                     const comm::Messenger::Answer& answer);
  void pull(int from, const comm::Message& request, const comm::Messenger::Answer& answer);
  void push_keys(int from, const comm::Message& request, const comm::Messenger::Answer& answer);
  void pull_keys(int from, const comm::Message& request, const comm::Messenger::Answer& answer);
  void fetch(int from, const comm::Message& request, const comm::Messenger::Answer& answer);
  void goodbye(int from, const comm::Message& request);
  void left(int from, bool lost, const std::string& why, const WorkerEnd& end = {});
  LateReply who_is_late(int asker) const;
  void await_end(int from, const comm::Messenger::Answer& answer);
  void answer_await_end();
  void peer_lost(int peer, const std::string& why);
  void peer_back(int peer, int life);

  // Updates (server_updates.cpp).
  void take_push(Slot& slot, int from, const PushHead& head, std::span<const std::byte> payload,
                 const comm::Messenger::Answer& answer);
  void hold(Slot& slot, int from, const PushHead& head, std::span<const std::byte> payload,
            comm::Messenger::Answer answer);
  bool answers_again(Slot& slot, int from, const PushHead& head, const comm::Messenger::Answer& answer);
  bool is_turn(const Slot& slot, int from, const PushHead& head) const;
  static bool holds(const Slot& slot, int from, int64_t life);
  void add_held(Slot& slot);
  void discard(HeldPush& push);
  void add(Slot& slot, int from, int64_t life, const PushHead& head, std::span<const std::byte> gradient,
           bool held);
  void updates_ended();
  void update_decided(const UpdateHead& head, std::vector<Contributor> from);
  void advance(Slot& slot);
  static int64_t needed(const Slot& slot, const Decided& update);
  void write_off(const Contributor& gradient);
  static void write_off(Slot& slot, const Contributor& gradient);
  Decided* decided(int64_t number);
  const Decided* decided(int64_t number) const;
  bool apply(Slot& slot, Decided& update);
  void applied(Slot& slot);
  void keep(int64_t version);
  void after_change(Slot& slot);
  void answer_pull(Slot& slot, const PullHead& head, const comm::Messenger::Answer& answer);
  void answer_fetch(Slot& slot, const WaitingFetch& fetch);
  void tell(int peer, const comm::Message& message);
  void tell_servers(const comm::Message& message);
  size_t ranges_before(int64_t update) const;
  void forget_done();
  void recall(int64_t update);
  void acknowledge(Slot& slot, int from, int64_t life, const PushHead& head,
                   const comm::Messenger::Answer& answer);
  void answer_when_safe(Slot& slot, const comm::Messenger::Answer& answer, const comm::Reply& reply);
  void apply_keys(Share& share, std::span<const int64_t> keys, std::span<const std::byte> values);

  // The scheduler (server_scheduler.cpp).
  void make_scheduler();
  SchedulerWire scheduler_wire();
  Scheduler* scheduler();  // if this server runs it; else nullptr
  const Scheduler* scheduler() const { return const_cast<Server*>(this)->scheduler(); }
  int scheduler_peer() const;
  GrantReply decide(SchedulerInput input, const std::string& why = "");
  void once_decided(std::function<void()> task);
  void scheduler_moved(bool here);
  void to_scheduler(int from, const comm::Message& request, const comm::Messenger::Answer& answer);
  void join(int from, const comm::Message& request, const comm::Messenger::Answer& answer);
  void finished(int from, const comm::Message& request, const comm::Messenger::Answer& answer);
  void snapshot(const comm::Messenger::Answer& answer);
  void report(const comm::Messenger::Answer& answer);
  void send_update(const UpdateHead& head, const std::vector<Contributor>& from);

  // Copies of ranges (server_chain.cpp).
  // Whether changes are logged: for copies, or because homes may move.
  bool is_copied() const { return options_.replicas > 0 || is_elastic(); }
  bool is_elastic() const { return options_.at_start > 0; }
  void make_shares();
  void make_tables(Share& share);
  sparse::Tables& tables_for(int from, const comm::Message& request);
  Share& add_share(int home, bool serves);
  Share* share_of(int home);
  void send_entry(int server, const EntryHead& head, const Chain::Bytes& entry, Chain::Task acknowledged);
  void fail(const std::string& error);
  void log_change(Share& share, std::vector<std::byte> entry);
  void log_change(Slot& slot, std::vector<std::byte> entry);
  void log_update(Slot& slot, int64_t version, double lr, double weight, ApplyChange::Gradient gradient,
                  std::span<const std::byte> data);
  void log_sum(Slot& slot);
  void answer_pushes(Slot& slot);
  static void check_bytes(const Slot& slot, size_t bytes);
  std::vector<RangeStore::Early> early_of(const Slot& slot) const;
  void take_entry(int from, const comm::Message& request, const comm::Messenger::Answer& answer);
  void change(Share& share, std::span<const std::byte> entry);
  void copy_held(Slot& slot, const HoldChange& change, std::span<const std::byte> gradient);
  void copy_gradient(Slot& slot, const AddChange& change, std::span<const std::byte> gradient);
  void copy_update(Slot& slot, const ApplyChange& change, std::span<const std::byte> data);
  Slot& copy_of(Share& share, int64_t range);
  enum class Departure { kLost, kLeft, kEnded };  // kEnded: with the job
  void server_gone(int server, Departure how, const std::string& why);
  void workers_have_left();
  void take_over(Share& share);
  void catch_up(Slot& slot);
  void take_over_from(int server, Departure how, const std::string& why);
  void end_move_of_predecessor(int home);
  void check_is_here(int home) const;
  void check_is_left(int home) const;
  void postpone(int from, const comm::Message& request, const comm::Messenger::Answer& answer);
  void handle_postponed();
  void say(const std::string& news) const;
  void say_taken_over(int server, Departure how, const std::string& why, bool schedules_now);
  void tell_departure(Kind kind);

  // Copies made anew (server_copies.cpp).
  void extend_chains(bool makes_copies);
  void extend_chain(Share& share, bool makes_copies);
  void send_copy(Share& share, CopyHead head, std::vector<std::byte> payload,
                 std::function<void(const CopyReply&)> then);
  static bool is_safe_without_copy(const Share& share);
  void give_up_copy(Share& share, const std::string& error);
  void begin_copy(Share& share);
  void copy_ranges(Share& share);
  bool copy_next(Share& share);
  void end_copy(Share& share);
  void load_tables(Share& share, std::span<const std::byte> state);
  void take_copy(int from, const comm::Message& request, const comm::Messenger::Answer& answer);
  void begin_filling(int home, int64_t number);
  std::vector<std::byte> save_slot(const Slot& slot) const;
  void load_slot(Slot& slot, std::span<const std::byte> state);
  std::vector<std::byte> save_share(Share& share);
  void load_share(Share& share, std::span<const std::byte> state);
  bool concerns_missing(Share& share, std::span<const std::byte> entry);

  // Broken links (server_fence.cpp).
  void suspect(int server, const std::string& why);
  void ask_whether_gone(int server, const std::string& why, Deadline deadline);
  void end_cut_off(const std::string& whom);

  // Joining (server_welcome.cpp).
  void server_joined(int server);
  void welcome(int server);
  std::vector<std::byte> save_welcome();
  void take_welcome(int from, const comm::Message& request, const comm::Messenger::Answer& answer);
  void greet_all(const comm::Messenger::Answer& answer);
  void balance();
  void order(int home, int giver, int taker);

  // Homes that move (server_move.cpp, server_stand_back.cpp).
  std::string name_of(int64_t server) const;
  void order_move(int home, int to);
  void next_move();
  void begin_move(const Succession::Move& move);
  void tell_filled(Share& share);
  void check_move(int from, const MoveHead& head) const;
  void take_move(int from, const comm::Message& request, const comm::Messenger::Answer& answer);
  void hand_over(Share& share);
  void commit(const Succession::Move& move);
  void claim(const Succession::Move& move, const comm::Messenger::Answer& answer);
  void ask_to_agree(const std::shared_ptr<Claim>& claim, int server, std::function<void()> then);
  void serve_moved(const Claim& claim);
  void agree(const Succession::Move& move);
  void tell_moved(const Succession::Move& move);
  void take_moved(int from, const Succession::Move& move);
  void give_up_move(int home);
  void say_moved(const Succession::Move& move) const;
  void note_moved(const Succession::Move& move);
  void go_on();
  void stand_back(Share& share);
  void park_requests(Share& share, Slot& slot);
  void answer_parked(Share& share);
  void forget_share_in_updates(Share& share);
  void drop_share(Share& share);

  // Workers that join and leave (server_workers.cpp).
  bool is_late(int worker) const;
  void await_late_workers();
  void has_joined(int worker);
  bool all_gone(bool unjoined_too) const;

  // Leaving (server_leave.cpp).
  std::string why_not_leave() const;
  void hand_everything_over();
  void finish_leaving();
  void leave_now();

  // Clipping (server_clip.cpp).
  void tell_square();
  bool tell_square(Share& share);
  void take_square(int from, const SquareHead& head);
  void send_factor(const ClipHead& clip);
  void tell_squares_again();
  void take_factor(const ClipHead& head);

  Slot& slot_of(int from, int64_t range);
  Share& share_for_keys(int from, std::span<const int64_t> keys, int64_t width);
  void check_part(int from, const Slot& slot, int64_t begin, int64_t count) const;
  void check_finite(int from, std::span<const std::byte> payload) const;
  bool has_keys(const KeysHead& head, size_t bytes, size_t each) const;
  bool is_worker(int rank) const { return rank < options_.workers; }
  int own_index() const { return messenger_.rank() - options_.workers; }

  comm::Messenger& messenger_;
  ServerOptions options_;
  Succession succession_;
  std::unique_ptr<Scheduler> scheduler_;     // in the first server, unless there are copies
  std::unique_ptr<CopiedScheduler> copied_;  // in servers that hold the first home, if there are
  sandblaster::VectorService vectors_;
  Clipping clipping_;              // used by the scheduler's server
  bool strict_ = false;            // updates consume gradients of their own version only
  bool copies_gradients_ = false;  // one by one, not their sum
  std::optional<OpenHead> opened_;
  std::vector<int64_t> tensors_;  // elements of each, as opened
  Sharding sharding_;
  std::vector<std::unique_ptr<Share>> shares_;  // the own one first
  std::vector<std::byte> unpacked_;             // a gradient that came in fewer bytes
  std::vector<Slot*> by_range_;                 // nullptr: on other servers
  std::vector<Slot*> slots_;                    // of the shares that are served, by range
  std::vector<Postponed> postponed_;
  bool awaits_welcome_ = false;             // this server joins a running job
  std::atomic<bool> has_ended_ = false;     // with the job; who joins now is told
  std::vector<int> unwelcomed_;             // servers that joined before there were ranges
  std::vector<int> ready_;                  // servers that have joined, as the scheduler's server knows
  std::optional<int> balancing_;            // the home that the scheduler's server has ordered to move
  std::deque<Succession::Move> moves_;      // of homes that this server serves, one after the other
  std::optional<Succession::Move> moving_;  // the move in progress
  size_t largest_range_ = 0;                // bytes
  std::deque<Decided> decided_;
  std::deque<Decided> past_;  // applied by all ranges here, for copies that may need them
  int64_t updates_heard_ = 0;
  int64_t snapshot_wanted_ = -1;
  bool ended_ = false;                 // no more updates will be decided
  bool gives_up_last_ = false;         // leaving, and all homes have moved
  bool leaving_ = false;               // requests of workers wait until another server serves them
  std::vector<bool> lost_;             // by worker
  std::vector<bool> left_;             // by worker: left normally
  std::vector<double> heard_;          // by worker: time of its last request
  std::vector<std::string> why_lost_;  // by worker
  std::vector<WorkerEnd> ends_;        // by worker: as told when it left
  std::vector<std::pair<int, comm::Messenger::Answer>> await_end_;
  size_t early_bytes_ = 0;
  std::vector<int64_t> lives_;           // by worker: restart count
  std::vector<Contributor> last_named_;  // by worker: its last gradient consumed by an update
  Numbers numbers_;
  ServerClock clock_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<bool> gone_;      // by worker: left or lost; guarded by mutex_, like all below
  std::vector<bool> unjoined_;  // by worker: has connected late, and not joined yet
  int64_t left_in_order_ = 0;   // workers
  bool has_left_ = false;
  bool is_cut_off_ = false;    // likewise, without having handed anything over
  bool ends_at_once_ = false;  // with error_, without waiting for workers
  std::string error_;
  int64_t losses_ = 0;       // workers lost in their first life
  int64_t lost_before_ = 0;  // value of losses_ when another server was lost
};

}  // namespace yoke::ps
