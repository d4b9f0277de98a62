// Access to values on parameter servers from your own program: push, pull, push_pull on ranges or keys.
//
//   yoke::ps::Client client(messenger, {.workers = 2, .servers = 1, .keys = 1'000'000});
//   auto pushed = client.push(0, std::span(gradient));
//   client.wait(client.pull(0, std::span(values)));
//
// Every operation returns immediately with a timestamp. Buffers must stay valid until it is complete. What a
// push does to the values is configured on the servers (ps/updater.h): an optimizer, a sum, or a custom
// function. Thread-safe: operations of one thread on one server are applied in order, those of several
// threads in any order. Every push is applied exactly once, or at most once if it ends with an error. If a
// server with replicas is lost, what it has not answered is sent to the server that took over; only then may
// operations of one thread overtake each other.
#pragma once

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
#include "yoke/ps/messages.h"
#include "yoke/ps/moves.h"
#include "yoke/ps/server_view.h"
#include "yoke/ps/sharding.h"

namespace yoke::ps {

struct ClientOptions {
  int workers = 1;
  int servers = 1;
  int64_t keys = 1;
  int64_t width = 1;  // values per key; key k holds elements k * width and following
  DataType type = DataType::kFloat32;
  int64_t range_bytes = 256 << 10;
  double timeout = 300;  // seconds per request
  int replicas = 0;      // of the servers: copies of each range, by which requests survive the loss of one
  int at_start = 0;      // as in ServerOptions
  std::vector<std::string> machines{};  // likewise
};

class Client {
 public:
  using Timestamp = int64_t;
  // Called once, on the messenger's thread, when an operation is complete; `error` is empty on success. Must
  // not block. An exception becomes the error of wait().
  using Done = std::function<void(const std::string& error)>;

  // Opens the values on all servers; the first client allocates them (as zeros), the others must use the same
  // options. Throws ConfigError, CommError.
  Client(comm::Messenger& messenger, ClientOptions options);
  ~Client();  // waits for operations in flight, then leaves

  // Elements [begin, begin + size). Throw ConfigError if out of range.
  Timestamp push(int64_t begin, std::span<const std::byte> values, Done done = {});
  Timestamp pull(int64_t begin, std::span<std::byte> into, Done done = {});
  // Returns the values after this push, and possibly after others.
  Timestamp push_pull(int64_t begin, std::span<const std::byte> values, std::span<std::byte> into,
                      Done done = {});
  // `width` values per key, in the order of `keys`.
  Timestamp push_keys(std::span<const int64_t> keys, std::span<const std::byte> values, Done done = {});
  Timestamp pull_keys(std::span<const int64_t> keys, std::span<std::byte> into, Done done = {});

  template <class T>
  Timestamp push(int64_t begin, std::span<T> values, Done done = {}) {
    return push(begin, std::span<const std::byte>(std::as_bytes(values)), std::move(done));
  }
  template <class T>
  Timestamp pull(int64_t begin, std::span<T> into, Done done = {}) {
    return pull(begin, std::as_writable_bytes(into), std::move(done));
  }

  // Blocks until the operation is complete. Throws CommError if it failed, once, unless it had a Done
  // callback.
  void wait(Timestamp timestamp);
  bool is_over(Timestamp timestamp) const;
  // For servers that train under bounded_delay or ssp: changes the maximum delay while they run
  // (plan::PolicyOptions::kUnbounded: no bound). Returns once it is in effect. Throws CommError if the rule
  // has none.
  void set_max_delay(int64_t max_delay);
  // Leaves the servers. Called by the destructor. Throws CommError.
  void goodbye();

 private:
  struct Operation;
  struct Part {
    int64_t range;
    int64_t begin;
    int64_t count;
  };
  // Numbers of pushes to the ranges of one server, by which resends are recognised.
  struct Line {
    int64_t next = 1;
    std::set<int64_t> open;  // not complete
  };
  struct Number {
    int64_t own = 0;      // 0: not a push
    int64_t settled = 1;  // all numbers below are complete
  };
  std::vector<Part> parts_of(int64_t begin, size_t bytes) const;
  std::shared_ptr<Operation> begin_operation(size_t requests, Done done);
  Number next_number(int server);
  void send(const std::shared_ptr<Operation>& operation, int home, const comm::Message& message,
            std::span<std::byte> into, int64_t number, Moves moves);
  void close(const std::shared_ptr<Operation>& operation, int home, int64_t number, const std::string& error);
  void check_keys(const char* verb, size_t keys, size_t bytes, size_t each) const;
  void over(const std::shared_ptr<Operation>& operation, const std::string& error);
  Timestamp move(uint16_t kind, int64_t begin, std::span<const std::byte> values, std::span<std::byte> into,
                 Done done);
  std::vector<std::vector<size_t>> keys_by_server(std::span<const int64_t> keys) const;
  int rank_of(int server) const { return options_.workers + server; }

  comm::Messenger& messenger_;
  ClientOptions options_;
  ServerView servers_;
  Sharding sharding_;
  size_t element_;
  mutable std::mutex mutex_;
  std::condition_variable ended_;
  Timestamp next_ = 1;
  std::vector<Line> lines_;  // by server
  std::map<Timestamp, std::shared_ptr<Operation>> under_way_;
  std::map<Timestamp, std::string> failed_;  // not waited for yet
  bool said_goodbye_ = false;
};

}  // namespace yoke::ps
