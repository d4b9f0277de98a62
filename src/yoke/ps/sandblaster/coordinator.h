// Runs L-BFGS on vectors that lie in shards: Sandblaster (Dean et al., 2012).
//
// It never touches a parameter. Its thread sends small commands to the shards, which answer with one number
// each, and hands out portions of the batch to workers, who exchange parameters and gradients with the shards
// directly. ask(), lost() and the numbers are for the messenger's thread; they never block.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "yoke/comm/messenger.h"
#include "yoke/ps/sandblaster/messages.h"
#include "yoke/ps/sandblaster/options.h"
#include "yoke/ps/sandblaster/portions.h"

namespace yoke::ps::sandblaster {

class Coordinator {
 public:
  // Runs a command on all shards and combines their results. Blocks; throws CommError.
  using Command = std::function<double(const CommandHead&)>;

  // Starts the thread.
  Coordinator(const SandblasterOptions& options, int workers, Command command);
  ~Coordinator();  // stops

  // A worker requests work; it is answered at once, or when there is some, or when its phase is over. `idle`:
  // seconds since the first worker was last heard of. Throws CommError for an invalid request, and if
  // everybody waits for a first worker that is silent.
  void ask(int worker, const AskHead& head, const comm::Messenger::Answer& answer, double idle);
  // Its portions are handed out again.
  void lost(int worker);

  // Of a checkpoint. Between steps of the first worker only; throws CommError for invalid numbers.
  void assign(const kernels::LbfgsNumbers& numbers);
  kernels::LbfgsNumbers numbers() const;

  // Ends the thread; all requests fail from then on.
  void stop();

  struct Counts {
    int64_t evaluations = 0;
    int64_t commands = 0;
    int64_t portions = 0;              // whose result counted
    int64_t copies = 0;                // portions that were handed out again
    int64_t wasted = 0;                // results that came too late
    int64_t bytes = 0;                 // sent and received by the coordinator
    std::vector<int64_t> by_worker{};  // portions whose result counted
  };
  Counts counts() const;

 private:
  class Vectors;
  struct Pending {
    AskHead head;
    comm::Messenger::Answer answer;  // empty: none
  };
  // Phases in order: two of each step.
  static int64_t position(const AskHead& head) { return 2 * head.step + head.phase; }

  void run();
  bool begin_phase();
  void end_phase();
  void evaluate_start();
  double evaluate();
  double command(const CommandHead& head);
  void take_result(int worker, const AskHead& head);
  AskReply over_reply() const;
  void fail(const std::string& why);

  using Answers = std::vector<std::pair<comm::Messenger::Answer, AskReply>>;
  Answers find_answers();
  static void send(const Answers& answers, const std::string& failure);

  const SandblasterOptions options_;
  const Command command_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_:
  std::vector<Pending> pending_;  // by worker
  int64_t current_ = -1;          // position that runs, or ran last
  int64_t finished_ = -1;         // position
  bool collecting_ = false;       // portions of an evaluation
  Portions portions_;
  std::vector<double> losses_;       // by portion
  double loss_ = 0, grad_norm_ = 0;  // where the current step starts
  double lr_ = 0;
  int64_t samples_ = 0;
  int32_t signal_ = 0;
  int64_t stop_after_ = 0;  // step; 0: none
  bool stopping_ = false;
  std::string failure_;
  kernels::LbfgsNumbers numbers_;
  int64_t evaluation_ = 0;
  Counts counts_;
  std::thread thread_;
};

}  // namespace yoke::ps::sandblaster
