// The sparse tables of a parameter server: pushes and pulls of the rows of some keys, and of ranges of keys.
//
// Pushes outside of updates are applied as they come, each once. Gradients of minibatches wait until the
// scheduler has named the update that consumes them and all of its gradients have arrived; they are added in
// worker order, and the rule of the table is applied to the sum. All tables have one version, the number of
// updates. Rounds (kPushRound) are independent of that: a range of keys is updated once all workers have
// given their parts of it for the same time. Everything a peer sends is checked before it changes any state;
// CommError refuses it and names the sender. Runs on the messenger's thread.
//
// With copies, each change is logged before it is made, and answers wait until the copies have it. An update
// or a round is logged as the sum of its gradients: a gradient is acknowledged with its update or round, and
// sent again if the server is lost before.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "yoke/comm/messenger.h"
#include "yoke/ps/entries.h"
#include "yoke/ps/messages.h"
#include "yoke/ps/sparse/held.h"
#include "yoke/ps/sparse/key_cache.h"
#include "yoke/ps/sparse/rounds.h"
#include "yoke/ps/sparse/table.h"
#include "yoke/ps/taken_numbers.h"

namespace yoke::ps::sparse {

struct TablesOptions {
  int workers = 1;
  int servers = 1;
  int server = 0;  // of these, whose keys these are
  // The rule of a table. Empty: tables cannot be opened.
  std::function<std::shared_ptr<const Rule>(int table)> make_rule;
  double lr = 1;  // of pushes outside of updates
  // Copies on other servers (ps/chain.h). Empty: there are none.
  std::function<void(std::vector<std::byte> entry)> log{};  // a change, for the copies
  // Calls the task once all changes that were logged are on all copies.
  std::function<void(std::function<void()> task)> when_safe{};
  bool copies_gradients = false;  // one by one, not their sum
  bool serves = true;             // false: holds a copy, until serve()
};

class Tables {
 public:
  explicit Tables(TablesOptions options);

  static bool handles(uint16_t kind) { return kind >= kOpenTable && kind <= kPullRound; }
  // Largest payload of a message of this kind.
  static size_t most_bytes(uint16_t kind);
  void handle(int from, const comm::Message& request, const comm::Messenger::Answer& answer);

  // The server whose keys a message is about. Throws CommError if its head is invalid.
  static int64_t home_of(const comm::Message& request);

  // Makes a change that the server before this one in the chain has logged. Requires that it holds a copy.
  void change(EntryReader& entry, Change kind);
  // Takes over: gradients that no change has brought are sent again.
  void serve();

  bool empty() const { return tables_.empty(); }
  size_t count() const { return tables_.size(); }
  int64_t updates() const { return updates_; }  // applied

  // A copy made anew (tables_fill.cpp): first all but the rows, then the rows of the tables there were.
  // Changes that are logged meanwhile are made as usual. load_ functions throw CommError if something does
  // not fit.
  struct Cursor {
    size_t table = 0;
    size_t tables = 0;  // at the beginning
    uint32_t row = 0;
  };
  std::vector<std::byte> save_state();
  void load_state(std::span<const std::byte> state);
  // The next rows, and moves on. Empty: there are none left.
  std::vector<std::byte> save_rows(Cursor& cursor) const;
  void load_rows(std::span<const std::byte> rows);
  bool is_filled() const;
  // Ceases to serve: what remains is what a copy has. `park` gets the answers of requests that wait.
  void stand_back(const std::function<void(const comm::Messenger::Answer&)>& park);
  void update_decided(const UpdateHead& head, std::vector<Contributor> from);
  // No more updates will be decided: other gradients are dropped.
  void ended();
  // Keeps a copy of this version, now or once it is reached; drop() ends that.
  void keep(int64_t version);
  void drop();
  void worker_lost(int worker);
  void worker_back(int worker, int64_t life);
  // The worker whose gradient the next update, or a round that is asked for, waits for.
  std::optional<int> owes() const;

  struct Numbers {
    size_t rows = 0;
    size_t bytes_held = 0;  // of rows, gradients that wait, and kept lists of keys
    int64_t duplicates = 0;
    int64_t cached_lists = 0;   // lists of keys that were named by their hash
    int64_t payload_bytes = 0;  // received and sent
    Numbers& operator+=(const Numbers& other);
  };
  Numbers numbers() const;

 private:
  struct Worker {
    bool lost = false;
    int64_t life = 0;
    int64_t applied = -1;  // its last minibatch, of this life, that an update has consumed
    TakenNumbers taken;
    std::vector<KeptLists> lists;  // by table
    size_t waiting = 0;            // its requests that wait for a version
  };
  struct Waiting {
    int from;
    int64_t version;
    bool snapshot;
    std::function<void()> answer;
    comm::Messenger::Answer to;  // where it answers
  };
  struct WaitingRound {
    int from;
    int32_t table;
    KeyRange range;
    int64_t time;
    std::function<void()> answer;
    comm::Messenger::Answer to;  // where it answers
  };
  struct Update {
    UpdateHead head;
    std::vector<Contributor> from;
  };
  // A gradient that is acknowledged with its update.
  struct Unanswered {
    HeldGradients::Name name;
    comm::Messenger::Answer answer;
  };
  using Sums = std::vector<std::optional<SparseSum>>;  // by table
  struct Named {
    KeyList kept;               // nullptr: the list is not kept
    std::span<const Key> keys;  // of the payload, or of `kept`
    std::span<const std::byte> values;
    std::vector<uint32_t>* rows() const { return kept ? &kept->rows : nullptr; }
    KeyList list() const { return kept ? kept : make_list(keys); }
  };

  void open(int from, const comm::Message& request, const comm::Messenger::Answer& answer);
  void assign(int from, const comm::Message& request, const comm::Messenger::Answer& answer);
  void push(int from, const comm::Message& request, const comm::Messenger::Answer& answer);
  void pull(int from, const comm::Message& request, const comm::Messenger::Answer& answer);
  void fetch(int from, const comm::Message& request, const comm::Messenger::Answer& answer);
  void push_round(int from, const comm::Message& request, const comm::Messenger::Answer& answer);
  void pull_round(int from, const comm::Message& request, const comm::Messenger::Answer& answer);
  Rounds& rounds_of(int32_t table);
  void await_round(int from, int32_t table, KeyRange range, int64_t time, const comm::Messenger::Answer& to,
                   std::function<void()> answer);
  void apply_rounds(int32_t table);
  void rounds_applied(int32_t table);
  void log_round(int32_t table, const Rounds::Complete& one);
  void change_round(EntryReader& entry);
  void load_rounds(Loader& loader, int64_t table);
  Table& table_of(int from, int64_t table);
  Worker& worker(int rank) { return workers_[static_cast<size_t>(rank)]; }
  std::optional<Named> names(int from, int32_t table, int32_t flags, int64_t keys, uint64_t hash,
                             std::span<const std::byte> payload, size_t each);
  std::span<const std::byte> restored(int32_t flags, double unit, int64_t keys,
                                      std::span<const std::byte> values, const TableShape& shape);
  bool is_new(int from, const PushTableHead& head);
  void push_gradient(int from, const PushTableHead& head, const Named& named,
                     std::span<const std::byte> values, const comm::Messenger::Answer& answer);
  // Once all copies have what this reply acknowledges or exposes.
  void answer_safely(const comm::Messenger::Answer& answer, const comm::Reply& reply) const;
  void answer_pushed(const comm::Messenger::Answer& answer) const;
  bool is_copied() const { return static_cast<bool>(options_.log); }
  void log_update(const Update& update, const Sums& sums, double weight, double square);
  void log_sum(const Sums& sums);
  void log_part(size_t table, const SparseSum& sum, int64_t& first);
  void made(const UpdateHead& head, const std::vector<Contributor>& from);
  void apply_sums(const Sums& sums, double lr, double weight);
  Sums sums_of(const std::vector<const HeldGradient*>& gradients) const;
  std::vector<const HeldGradient*> gradients_of(const std::vector<Contributor>& from) const;
  void create(const OpenTableHead& head, int from);
  void change_open(EntryReader& entry);
  void change_rows(EntryReader& entry, Change kind);
  void change_update(EntryReader& entry);
  void finish();
  void read_rows(const Table& table, std::span<const Key> keys, std::vector<uint32_t>* rows, bool packs,
                 const comm::Messenger::Answer& answer);
  void read_range(Table& table, const FetchTableHead& head, const comm::Messenger::Answer& answer);
  void count_waiting(int from, int64_t time);
  void wait(int from, int64_t version, bool snapshot, const comm::Messenger::Answer& to,
            std::function<void()> answer);
  std::optional<int> update_owed_by() const;
  bool is_over(const Contributor& one) const;
  void advance();
  void apply(const Update& update);
  void reached(int64_t version);
  std::shared_ptr<std::vector<std::byte>> buffer();
  void send(comm::Message message, std::shared_ptr<std::vector<std::byte>> payload,
            const comm::Messenger::Answer& answer);

  TablesOptions options_;
  std::vector<std::unique_ptr<Table>> tables_;  // by number; nullptr: not opened
  std::vector<OpenTableHead> opened_;           // by number, as they were opened
  std::vector<Worker> workers_;
  HeldGradients held_;
  std::deque<Update> decided_;  // not applied
  std::vector<Unanswered> unanswered_;
  Sums incoming_;        // of a copy: the sum of the next update or round, in parts
  int64_t updates_ = 0;  // applied
  int64_t version_ = 0;
  bool ended_ = false;  // no more updates will be decided
  double square_ = -1;  // of the last update
  int64_t snapshot_wanted_ = -1;
  std::vector<Waiting> waiting_;
  std::vector<std::unique_ptr<Rounds>> rounds_;  // by table; nullptr: none so far
  std::vector<WaitingRound> waiting_rounds_;
  std::vector<std::byte> unpacked_, restored_;                  // values of a push
  std::shared_ptr<std::vector<std::vector<std::byte>>> spare_;  // memory of replies
  Numbers numbers_;
};

}  // namespace yoke::ps::sparse
