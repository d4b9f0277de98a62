// Sparse tables on parameter servers, from your own program: rows of `width` values by 64-bit keys.
//
//   yoke::ps::sparse::Client client(messenger, {.workers = 2, .servers = 1, .tables = {{.width = 4}}});
//   client.wait(client.push(0, keys, gradients));   // keys ascend
//   client.wait(client.pull(0, keys, rows));        // zeros for keys that nobody has pushed
//
// What a push does is the rule of the table on the servers (ps/sparse/rules.h). Operations return at once
// with a timestamp; memory given to them must stay valid until they are complete. Lists longer than a message
// are sent in several. Every push is applied exactly once, or at most once if it ends with an error.
// Thread-safe: operations of one thread are applied in order on each server, except that a server may see
// those of several messages one by one.
#pragma once

#include <array>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "yoke/comm/messenger.h"
#include "yoke/ps/replica_ranks.h"
#include "yoke/ps/server_view.h"
#include "yoke/ps/sparse/fixed_point.h"
#include "yoke/ps/sparse/key_cache.h"
#include "yoke/ps/sparse/messages.h"
#include "yoke/ps/sparse/range_clock.h"

namespace yoke::ps::sparse {

struct TableOptions {
  int64_t width = 1;
  Key keys = kMostKeys;  // keys are below this
  DataType type = DataType::kFloat32;
  int64_t pushed = 0;  // values per key of a push, if the rule takes another structure; 0: `width`
};

struct ClientOptions {
  int workers = 1;
  int servers = 1;
  int replicas = 0;  // of the servers: copies of each table
  // Where the servers are, shared with a Learner, which hears of changes. nullptr: a view of its own.
  std::shared_ptr<ServerView> view{};
  std::vector<TableOptions> tables = {{}};
  bool key_cache = true;
  int fixed_point = 0;    // bytes of a pushed value, 1 or 2; 0: as they are
  uint64_t seed = 1;      // of the rounding to fixed point
  bool compress = false;  // values, both ways, with zstd
  size_t message_bytes = 256 << 10;
  double timeout = 300;  // seconds per request
  // Called by the waiting thread if a request timed out, which is then sent again; throws if waiting is
  // pointless. Empty: a timeout is an error.
  std::function<void()> late;
  bool says_goodbye = true;  // false: another object of this worker leaves the servers
  ReplicaRanks ranks{};      // of the job, for messages; by default each worker is a rank
};

// What was sent and received, and what filters have saved of it.
struct Traffic {
  int64_t messages = 0;      // sent
  int64_t sent = 0;          // bytes of keys and values, without heads
  int64_t received = 0;      // likewise
  int64_t keys_saved = 0;    // bytes of lists that were named by their hash
  int64_t values_saved = 0;  // bytes of values sent as fixed point
  int64_t packed_saved = 0;  // bytes of values, sent and received, that were compressed
};

class Client {
 public:
  using Timestamp = int64_t;
  // Called once, on the messenger's thread, when an operation is complete; `error` is empty on success. Must
  // not block.
  using Done = std::function<void(const std::string& error)>;

  // Opens the tables on all servers; the first client creates them, the others must use the same options.
  // Throws ConfigError, CommError.
  Client(comm::Messenger& messenger, ClientOptions options);
  ~Client();  // waits for operations in flight, then leaves

  // State arrays of the rule of a table.
  int64_t state_arrays(int table) const { return state_arrays_[static_cast<size_t>(table)]; }

  // `values` and `into` have a row for each key. Throw ConfigError unless keys ascend and are in range.
  Timestamp push(int table, std::span<const Key> keys, std::span<const std::byte> values, Done done = {});
  Timestamp pull(int table, std::span<const Key> keys, std::span<std::byte> into, Done done = {});
  // Those of `keys` that lie in [begin, end).
  Timestamp push_range(int table, Key begin, Key end, std::span<const Key> keys,
                       std::span<const std::byte> values, Done done = {});
  // A round: every worker gives its gradient of the keys in `range` at `time` (from 1), and the servers apply
  // their rule to the sum, once. Keys that are left out count as zeros. The times of a range ascend; push a
  // range again only when its last push is complete. With copies that is once the round was applied: until
  // then only one server has it. Throws ConfigError for keys outside of the range.
  Timestamp push_round(int table, KeyRange range, int64_t time, std::span<const Key> keys,
                       std::span<const std::byte> values, Done done = {});
  // Waits until the round `time` was applied to the keys of `range` that lie around these keys.
  Timestamp pull_round(int table, KeyRange range, int64_t time, std::span<const Key> keys,
                       std::span<std::byte> into, Done done = {});
  // All rows on the servers whose keys lie in [begin, end), in order.
  struct Rows {
    std::vector<Key> keys;
    std::vector<std::byte> values;
  };
  Rows pull_range(int table, Key begin, Key end);

  // Blocks until the operation is complete. Throws CommError if it failed, once, unless it had a Done.
  void wait(Timestamp timestamp);

  // ---- In a run with a scheduler (ps/learner.h) ----

  // Sets rows of an array (0: values, then the state) and the version of all tables at the start.
  void assign(int table, int64_t array, std::span<const Key> keys, std::span<const std::byte> values,
              int64_t version);
  struct Part {
    int table = 0;
    std::span<const Key> keys;
    std::span<const std::byte> values;
  };
  // The gradient of a minibatch that the scheduler has accepted. Blocks until all servers have it.
  void push_gradient(int64_t minibatch, double scale, bool measure, std::span<const Part> parts);
  struct Pulled {
    int64_t oldest = 0, newest = 0;  // versions of what was pulled
    double square = -1;              // of the update that made them; -1: not measured
  };
  // Waits for this version. `all_servers`: also those that hold none of the keys.
  Pulled pull_at(int64_t version, int table, std::span<const Key> keys, std::span<std::byte> into,
                 bool all_servers) {
    return end_pull_at(begin_pull_at(version, table, keys, into, all_servers, nullptr));
  }
  // The same in two steps. The servers answer once they have the version; if the run ends before that, with
  // an older one. `memory` is kept until then, whether anybody waits or not.
  struct Operation;
  using Pending = std::shared_ptr<Operation>;
  Pending begin_pull_at(int64_t version, int table, std::span<const Key> keys, std::span<std::byte> into,
                        bool all_servers, std::shared_ptr<const void> memory);
  Pulled end_pull_at(const Pending& pending);
  // All rows of an array: of the snapshot with this version, or as they are at this version or later.
  enum class From { kSnapshot, kNewest };
  Rows fetch(int table, int64_t array, From from, int64_t version);

  Traffic traffic() const;

 private:
  struct Call;
  // Of the keys of one server.
  struct Line {
    int64_t next = 1;
    std::set<int64_t> open;        // numbers of pushes that are not complete
    std::vector<SentLists> lists;  // by table
  };
  struct Piece {
    int server;
    size_t begin, end;     // of the list
    KeyRange range{0, 0};  // of a round: what it covers
    size_t count() const { return end - begin; }
    template <class Byte>
    std::span<Byte> of(std::span<Byte> values, size_t each) const {
      return values.subspan(begin * each, count() * each);
    }
  };
  // `each`: bytes of values per key.
  void check(const char* verb, int table, std::span<const Key> keys, size_t bytes, size_t each) const;
  const TableOptions& table_at(int table) const;  // throws ConfigError
  std::vector<Piece> pieces_of(int table, std::span<const Key> keys) const;
  // Pieces that cover the range, on every server that holds keys of it.
  std::vector<Piece> pieces_of_round(int table, KeyRange range, std::span<const Key> keys) const;
  void check_round(int table, KeyRange range, int64_t time, std::span<const Key> keys) const;
  std::shared_ptr<Operation> begin_operation(size_t calls, Done done);
  std::shared_ptr<Call> make_call(const std::shared_ptr<Operation>& operation, int table, int server,
                                  std::span<const Key> keys);
  // Sends a call for each piece; `prepare` adds what it carries.
  Timestamp start(const std::shared_ptr<Operation>& operation, int table, std::span<const Key> keys,
                  const std::vector<Piece>& pieces, const std::function<void(Call&, const Piece&)>& prepare);
  void encode(Call& call, std::span<const std::byte> values);
  void number(Call& call);
  void send(const std::shared_ptr<Call>& call);
  comm::Message message_of(Call& call);
  static comm::Message round_message(const Call& call, int32_t flags);
  void came(const std::shared_ptr<Call>& call, const comm::Message& reply, const std::string& error);
  void over(const std::shared_ptr<Call>& call, const std::string& error);
  void send_late();
  Rows fetch_range(const FetchTableHead& wanted);
  comm::Message ask(int server, const comm::Message& message, std::span<std::byte> into);
  void open();
  void goodbye();
  size_t row_bytes(int table) const;
  size_t pushed_bytes(int table) const;  // of a key
  comm::Messenger& messenger_;
  ClientOptions options_;
  std::vector<int64_t> state_arrays_;  // by table
  mutable std::mutex mutex_;
  std::condition_variable ended_;
  std::shared_ptr<ServerView> servers_;
  Timestamp next_ = 1;
  std::vector<Line> lines_;  // by server
  RoundingBits bits_;
  std::map<Timestamp, std::shared_ptr<Operation>> in_flight_;
  std::map<Timestamp, std::string> failed_;  // not waited for yet
  std::vector<std::shared_ptr<Call>> late_;  // timed out, to be sent again
  Traffic traffic_;
};

}  // namespace yoke::ps::sparse
