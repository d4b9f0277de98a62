// Values on parameter servers, from your own program: push, pull, push_pull on ranges or on keys.
//
//   yoke::ps::Client client(messenger, {.workers = 2, .servers = 1, .keys = 1'000'000});
//   auto pushed = client.push(0, std::span(gradient));
//   client.wait(client.pull(0, std::span(values)));
//
// Every operation returns at once with a timestamp. Memory that was handed in must stay until it is over.
// What a push does to the values is the servers' choice (ps/updater.h): an optimizer, a sum, or a function of
// yours. Thread-safe: operations of one thread on one server happen in order, those of several in any. Every
// push counts exactly once, unless it ends with an error: then at most once.
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
#include "yoke/ps/sharding.h"

namespace yoke::ps {

struct ClientOptions {
  int workers = 1;
  int servers = 1;
  int64_t keys = 1;
  int64_t width = 1;  // values of one key; key k holds elements k x width and following
  DataType type = DataType::kFloat32;
  int64_t range_bytes = 256 << 10;
  double timeout = 300;  // seconds of one request
};

class Client {
 public:
  using Timestamp = int64_t;
  // Called once, on the messenger's thread, when an operation is over; `error` is empty when all is well.
  // Must not wait. What it throws becomes the error of wait().
  using Done = std::function<void(const std::string& error)>;

  // Opens the values on all servers; the first client lays them out (as zeros), the others must agree. Throws
  // ConfigError, CommError.
  Client(comm::Messenger& messenger, ClientOptions options);
  ~Client();  // waits for what is under way, says goodbye

  // Elements [begin, begin + size). Throw ConfigError where there are no such elements.
  Timestamp push(int64_t begin, std::span<const std::byte> values, Done done = {});
  Timestamp pull(int64_t begin, std::span<std::byte> into, Done done = {});
  // The values after this push, and perhaps after others.
  Timestamp push_pull(int64_t begin, std::span<const std::byte> values, std::span<std::byte> into,
                      Done done = {});
  // `width` values of each key, in the order of the keys.
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

  // Until the operation is over. Throws CommError when it failed, once.
  void wait(Timestamp timestamp);
  bool is_over(Timestamp timestamp) const;
  // Where the servers train under bounded_delay or ssp: turns their dial while they run (kUnbounded of
  // plan::PolicyOptions: no bound). Returns when it holds. Throws CommError where the rule has none.
  void set_max_delay(int64_t max_delay);
  void goodbye();

 private:
  struct Operation;
  struct Part {
    int64_t range;
    int64_t begin;
    int64_t count;
  };
  // Pushes to one server: each has a number of its own, by which the server knows it again.
  struct Line {
    int64_t next = 1;
    std::set<int64_t> open;  // not over
  };
  struct Number {
    int64_t own = 0;      // 0: no push
    int64_t settled = 1;  // all below are over
  };
  std::vector<Part> parts_of(int64_t begin, size_t bytes) const;
  std::shared_ptr<Operation> begin_operation(size_t requests, Done done);
  Number next_number(int server);
  void send(const std::shared_ptr<Operation>& operation, int server, const comm::Message& message,
            std::span<std::byte> into, int64_t number);
  void check_keys(const char* verb, size_t keys, size_t bytes, size_t each) const;
  void over(const std::shared_ptr<Operation>& operation, const std::string& error);
  Timestamp move(uint16_t kind, int64_t begin, std::span<const std::byte> values, std::span<std::byte> into,
                 Done done);
  std::vector<std::vector<size_t>> keys_by_server(std::span<const int64_t> keys) const;
  int rank_of(int server) const { return options_.workers + server; }

  comm::Messenger& messenger_;
  ClientOptions options_;
  Sharding sharding_;
  size_t element_;
  mutable std::mutex mutex_;
  std::condition_variable ended_;
  Timestamp next_ = 1;
  std::vector<Line> lines_;  // by server
  std::map<Timestamp, std::shared_ptr<Operation>> under_way_;
  std::map<Timestamp, std::string> failed_;  // and nobody has waited for it
  bool said_goodbye_ = false;
};

}  // namespace yoke::ps
