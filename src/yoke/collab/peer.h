// One peer of a collaborative run, from joining to the last step.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "yoke/collab/client.h"
#include "yoke/collab/group.h"
#include "yoke/collab/state_transfer.h"

namespace yoke::collab {

// What computes: a model with its optimizer. All calls come from the thread of run_peer().
class Trainer {
 public:
  virtual ~Trainer() = default;
  // Samples of one batch that this peer asks for.
  virtual int64_t batch() const = 0;
  virtual int64_t elements() const = 0;     // of a gradient
  virtual int64_t state_bytes() const = 0;  // the same on every peer
  // Forward and backward of samples first..first+count-1 of the run's order; adds their gradients to those
  // since the last step. Returns the mean loss.
  virtual double compute(int64_t first, int64_t count) = 0;
  // Forgets gradients since the last step.
  virtual void discard() = 0;
  // Writes the mean gradient over the samples since the last step; zeros if there are none.
  virtual void read_gradient(std::span<float> into) = 0;
  // Updates the parameters with this gradient. `epoch`: number of the step, from 0.
  virtual void step(std::span<const float> gradient, int64_t epoch) = 0;
  virtual std::vector<std::byte> state() = 0;
  virtual void restore(const std::vector<std::byte>& state, int64_t epoch) = 0;
};

struct PeerOptions {
  nlohmann::json run;  // see MeetingOptions
  bool client_only = false;
  net::Address listen{.host = "127.0.0.1", .port = 0};
  LinkSpeed link;         // 0: measured
  double timeout = 15;    // of anything that should happen at once
  double reconnect = 60;  // seconds to wait for a meeting point that is lost
  // Where the run meets, if that is not what the ticket says; asked whenever it joins. Throws Error.
  std::function<net::Address(Deadline)> meeting;
  int64_t first_epoch = -1;                              // step of the state it has; -1: it needs the run's
  int64_t most_steps = 0;                                // leave after so many; 0: at the end of the run
  std::function<bool()> stopped = [] { return false; };  // leave between two batches
  // After each step.
  struct StepNews {
    int64_t epoch = 0;    // steps so far
    double loss = 0;      // mean over the samples of all peers
    int64_t samples = 0;  // of this peer
    double average_seconds = 0;
    int members = 0;
  };
  std::function<void(const StepNews&)> on_step = [](const StepNews&) {};
};

struct PeerSummary {
  int peer = -1;
  int64_t epoch = 0;    // of the run, when this peer left
  int64_t steps = 0;    // in which it took part
  int64_t samples = 0;  // averaged
  int64_t downloads = 0;
  int64_t rounds_repeated = 0;
  int64_t reconnects = 0;  // to a meeting point that was lost
  int64_t bytes_sent = 0;
  bool over = false;  // the run has reached its last step
};

// Joins the run of `ticket` and works until its end; if the meeting point is lost, waits for it to return
// with the same ticket. Throws Error with kRendezvous (refused, nobody there)
// and CommError (the meeting point is lost, the run ended with an error).
PeerSummary run_peer(const Ticket& ticket, const Identity& identity, Trainer& trainer,
                     const PeerOptions& options);

}  // namespace yoke::collab
