// The state of the run (parameters, buffers, optimizer) from one peer to another that was away.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "yoke/net/connection.h"

namespace yoke::collab {

struct SharedState {
  int64_t epoch = -1;
  std::vector<std::byte> bytes;
};
using StatePointer = std::shared_ptr<const SharedState>;

// Serves the state on its own thread, one peer after the other. The trainer copies its state only when
// somebody asks: it calls offer() between two batches.
class StateServer {
 public:
  // `acceptor` must outlive it.
  explicit StateServer(net::Acceptor& acceptor, double timeout);
  ~StateServer();
  StateServer(const StateServer&) = delete;
  StateServer& operator=(const StateServer&) = delete;

  // Whether somebody waits for a state of this epoch.
  bool wanted(int64_t epoch) const;
  void offer(StatePointer state);

 private:
  void serve();
  void give(net::Connection& connection);

  net::Acceptor& acceptor_;
  double timeout_;
  mutable std::mutex mutex_;
  StatePointer state_;
  int waiting_ = 0;
  bool stop_ = false;
  std::thread thread_;
};

// Downloads the state of `epoch` or a later one. Throws CommError: not reached, lost, stalled, or not this
// many bytes.
SharedState fetch_state(const std::string& address, const net::JobTicket& ticket, int peer, int64_t epoch,
                        int64_t bytes, double timeout);

}  // namespace yoke::collab
