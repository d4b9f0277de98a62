// Workers and spare ranks as threads of this process, over loopback connections: for tests and `yoke verify`.
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <thread>
#include <vector>

#include "yoke/comm/communicator.h"
#include "yoke/net/connection.h"

namespace yoke::comm {

class LocalSummation {
 public:
  struct Options {
    int workers = 2;
    int spares = 0;
    int64_t part_bytes = 4 << 20;
    double timeout = 60;    // seconds per operation
    double least_gain = 0;  // as of make_summing()
  };

  // Starts the threads of the spare ranks.
  explicit LocalSummation(const Options& options);
  // Fails the spare ranks unless finish() was called.
  ~LocalSummation();

  // The communicator of a worker. Collective: each worker calls it once, on its own thread. It must not
  // outlive this object.
  std::unique_ptr<Communicator> worker(int rank);

  // Waits for the spare ranks, once all workers have left. Throws what ended a spare rank.
  void finish();

  // Payload sent by a rank in summations, workers first.
  Counters counters(int rank) const { return everyone_[static_cast<size_t>(rank)]->counters(); }

 private:
  const Options options_;
  std::vector<std::unique_ptr<net::Acceptor>> acceptors_;
  std::vector<std::unique_ptr<Communicator>> everyone_;  // by rank
  std::vector<std::exception_ptr> errors_;               // by spare rank
  std::vector<std::jthread> threads_;                    // last: they use the rest
};

}  // namespace yoke::comm
