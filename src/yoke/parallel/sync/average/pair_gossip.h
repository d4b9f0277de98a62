// AD-PSGD (Lian et al. 2018): replicas average in pairs, on a thread of their own, while they compute.
//
// The thread owns this replica's shared values y. A step is computed on a copy; meet() adds what the step
// changed to y and returns y, which other replicas have changed in the meantime. Nobody waits for a step of
// anybody else.
#pragma once

#include <torch/types.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "yoke/comm/communicator.h"
#include "yoke/comm/give_up.h"
#include "yoke/plan/averaging/graph.h"

namespace yoke::parallel {

class PairGossip {
 public:
  // Collective. `like`: a flat tensor in host memory, of the size and type that travels.
  PairGossip(comm::Communicator& comm, const plan::MixingGraph& graph, const torch::Tensor& like);
  // Waits until all neighbours end as well.
  ~PairGossip();
  PairGossip(const PairGossip&) = delete;
  PairGossip& operator=(const PairGossip&) = delete;

  // All functions are called by one thread, and throw CommError once the thread has failed.

  // Starts from these values. Only before the first meet() and while paused.
  void reset(const torch::Tensor& values);
  // Replaces `values`, computed from what the last call returned, by y. `asks`: average with a neighbour
  // soon.
  void meet(torch::Tensor values, bool asks);
  // Takes part in no further pair, until resume(); returns when this replica is in none. Replicas that are
  // all paused keep their values.
  void pause();
  void resume();

  // Of the step that was just computed: the signal with which all replicas stop after it, or 0. All stop
  // after the same step: the latest that any of them had begun when the first signal came. `signal`: of this
  // replica, 0 behind the last step of the run.
  int agree_to_stop(int64_t step, int signal);

  int64_t pairs() const;  // in which this replica took part
  int64_t bytes_sent() const { return bytes_sent_; }

 private:
  struct Neighbour;
  enum class Doing { kNothing, kAsking, kReceiving, kGiving };

  void serve();
  void look();
  void hear();
  void handle(Neighbour& from);
  void accept_or_refuse(Neighbour& from);
  void ask();
  void finish_pair();
  void spread_stop(int signal);
  void settle_stop();
  void end();
  void give_up(const char* why);
  void tell(Neighbour& to, int64_t kind, int64_t value = 0);
  void await_message(Neighbour& from);
  void send_values(Neighbour& to);
  void check() const;  // with mutex_

  std::unique_ptr<comm::Communicator> comm_;
  comm::GiveUpOnException give_up_;
  uint64_t draws_ = 0;
  std::vector<std::unique_ptr<Neighbour>> neighbours_;

  std::atomic<int64_t> bytes_sent_{0};

  // The thread's.
  Doing doing_ = Doing::kNothing;
  Neighbour* partner_ = nullptr;
  torch::Tensor sent_, received_;
  comm::Pending sending_, receiving_;
  std::vector<int64_t> stop_numbers_;  // step, signal
  comm::Pending stopping_;

  mutable std::mutex mutex_;
  std::condition_variable wake_, changed_;
  torch::Tensor shared_, last_;  // y; what meet() returned last
  int asks_ = 0;                 // neighbours to try for the pair that is due
  bool paused_ = true, idle_ = true;
  bool ends_ = false;  // the owner is being destroyed
  int64_t pairs_ = 0;
  int64_t begun_ = 1;  // step that the replica may compute
  int wanted_signal_ = 0;
  bool frozen_ = false;
  int64_t stop_step_ = -1;
  int stop_signal_ = 0;
  std::exception_ptr error_;
  std::thread thread_;
};

}  // namespace yoke::parallel
