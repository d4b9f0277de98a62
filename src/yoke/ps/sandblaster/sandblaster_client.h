// A worker's side of L-BFGS on parameter servers: takes portions of a batch, pulls parameters, pushes
// gradients. One thread. Requests that time out are sent again while the server is alive.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "yoke/base/data_type.h"
#include "yoke/comm/messenger.h"
#include "yoke/kernels/lbfgs.h"
#include "yoke/ps/replica_ranks.h"
#include "yoke/ps/sandblaster/messages.h"
#include "yoke/ps/sharding.h"

namespace yoke::ps {
struct FlightPlan;
}

namespace yoke::ps::sandblaster {

struct ClientOptions {
  int workers = 1;
  int servers = 1;
  std::vector<int64_t> tensors;  // elements of each
  DataType type = DataType::kFloat64;
  int64_t range_bytes = 256 << 10;
  double timeout = 300;
};

// How a worker computes.
struct Work {
  void* parameters = nullptr;  // filled before a portion is computed
  const void* gradient = nullptr;
  std::function<void()> moved{};  // other parameters were filled in; may be empty
  // Computes samples [first, last) of the batch: their part of its loss, and in `gradient` of its gradient.
  std::function<double(int64_t first, int64_t last)> compute;
};

class SandblasterClient {
 public:
  // Opens the servers. The messenger must outlive it. Throws CommError, like all functions below.
  SandblasterClient(comm::Messenger& messenger, ClientOptions options);
  ~SandblasterClient();  // leaves

  int64_t elements() const { return sharding_.elements(); }

  // The first worker, before its first request for work: values of a vector, and the numbers of a checkpoint.
  void assign(int64_t vector, const void* values);
  void assign(const kernels::LbfgsNumbers& numbers);
  kernels::LbfgsNumbers fetch_numbers(int64_t history);

  // Fills `into` with a vector. Returns the evaluation that all servers were in, -1 if they differed.
  int64_t pull(int64_t vector, void* into);
  // Computes portions until the phase is over. `head`: step, phase, signal, samples and lr.
  AskReply take_part(AskHead head, const Work& work);

  // While this worker is busy with something else.
  void say_alive();
  std::string count();
  // The first worker: peak memory of each worker, once all others have left.
  std::vector<int64_t> await_end();
  void goodbye(int64_t peak_memory = 0);

  int64_t bytes_pushed() const { return bytes_pushed_; }
  int64_t bytes_pulled() const { return bytes_pulled_; }

 private:
  AskReply ask(const AskHead& head);
  void push(int64_t evaluation, int64_t portion, const void* gradient);
  int coordinator() const { return options_.workers; }
  int rank_of(const Range& range) const { return options_.workers + range.server; }
  size_t bytes_of(const Range& range) const;
  size_t offset_of(const Range& range) const;
  FlightPlan plan_of(size_t requests) const;
  void open();
  comm::Message ask_coordinator(const comm::Message& message, std::span<std::byte> into);

  comm::Messenger& messenger_;
  ClientOptions options_;
  Sharding sharding_;
  size_t element_;
  int64_t bytes_pushed_ = 0, bytes_pulled_ = 0;
  int64_t held_ = 0;  // evaluation whose parameters this worker has
  double said_alive_ = 0;
  bool said_goodbye_ = false;
};

}  // namespace yoke::ps::sandblaster
