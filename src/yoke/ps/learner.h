// A worker's side of training with parameter servers.
//
//   while (learner.wait()) {                      // the scheduler hands out work, or ends the run
//     if (!learner.pull(parameters)) continue;    // void meanwhile: there is newer work
//     … compute; stop when learner.cancelled() …
//     learner.push({gradient, loss, lr});
//   }
//
// One thread, but for cancelled(). Throws CommError when a server is lost, named, or refuses something, and
// LateWorker when a worker that others wait for gives no sign for LearnerOptions::timeout.
#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "yoke/comm/messenger.h"
#include "yoke/ps/flight.h"
#include "yoke/ps/messages.h"
#include "yoke/ps/sharding.h"

namespace yoke::ps {

struct LearnerOptions {
  int workers = 1;
  int servers = 1;
  std::vector<int64_t> tensors;  // elements of each, in the order in which the model needs them
  DataType type = DataType::kFloat32;
  int64_t range_bytes = 256 << 10;
  double timeout = 300;           // seconds for an answer, and for a sign of a worker that is waited for
  bool one_version = false;       // all ranges must have the version that was handed out
  bool measure_distance = false;  // how far parameters have moved since they were pulled
};

struct Gradient {
  const void* data = nullptr;  // the whole vector
  double loss = 0;
  double lr = 0;
  double compute_seconds = 0;
  double clip = 1;            // what clips it by itself, where its update is not clipped as a whole
  bool measure = false;       // update_norm() shall tell, where the update is of gradients of one version
  bool known_finite = false;  // somebody has looked already
  int64_t samples = 0;        // that it is of
};

// Of the gradient of an update, before clipping.
struct UpdateNorm {
  double norm = 0;
  int64_t first_bad = -1;  // where the first range begins whose part is not finite; -1: none
};

class LateWorker : public CommError {
 public:
  LateWorker(int worker, const std::string& text) : CommError("{}", text), worker_(worker) {}
  int worker() const { return worker_; }

 private:
  int worker_;
};

class Learner {
 public:
  // Serves what the scheduler tells: before the first request of the messenger.
  Learner(comm::Messenger& messenger, LearnerOptions options);
  ~Learner();  // says goodbye, if nobody has

  const Sharding& sharding() const { return sharding_; }
  int64_t elements() const { return sharding_.elements(); }
  // Arrays that the servers' optimizer keeps.
  int64_t state_arrays() const { return state_arrays_; }

  // One worker sets the start: array 0 are the parameters, then the optimizer's state; each the whole vector.
  void assign(int64_t array, const void* data, int64_t version, int64_t steps);
  // Work is handed out when all have joined, so the one who assigns joins last. `updates`: where the run
  // ends, told by one of them.
  void join(int64_t updates = 0);

  // Waits for newer work than that at hand. False: the run has ended.
  bool wait();
  // A sign of life, for who does something else than the work at hand for long. Cheap: at most one a second.
  void say_alive();
  const ReleaseHead& work() const { return work_; }
  bool ended() const;
  StopHead end() const;  // requires ended()

  // What was handed out is void: by an update, or by the end of the run. Any thread.
  bool cancelled() const { return inbox_->latest.load(std::memory_order_acquire) != work_.minibatch; }
  // False: cancelled before the time was over.
  bool sleep(double seconds);

  // Brings `parameters` (the whole vector) to the version of the work at hand, first ranges first. False:
  // void meanwhile.
  bool pull(void* parameters);
  // All ranges at this version or later. Requires that it was decided.
  void pull_at(int64_t version, void* parameters);
  // Whatever is newest of each range.
  void pull_newest(void* parameters) { pull_at(0, parameters); }
  // Asks whether the gradient counts and sends it if so. False: it was void. Refuses numbers that are not
  // finite before anything is sent (ConfigError).
  bool push(const Gradient& gradient);
  bool is_finite(const void* gradient) const;
  // Of the update that made the version that was pulled last, as far as it was measured.
  const std::optional<UpdateNorm>& update_norm() const { return update_norm_; }

  // A consistent state of all servers: fetches into `arrays` (parameters, then the optimizer's; whole
  // vectors).
  struct State {
    int64_t version = 0;
    int64_t steps = 0;
  };
  State fetch_state(const std::vector<void*>& arrays);

  std::string report();  // of the scheduler
  void ask_stop(int64_t signal);
  // Turns the dial of bounded_delay or ssp for all workers, at once. Throws CommError where the rule has
  // none.
  void set_max_delay(int64_t max_delay);
  // Until all other workers have left or are lost: the peak memory that each told with its goodbye, 0 where
  // none did. Throws LateWorker when that takes longer than the timeout.
  std::vector<int64_t> await_end();
  void goodbye(int64_t peak_memory = 0);
  // Leaves without a word: the messenger ends, or has ended.
  void abandon() { said_goodbye_ = true; }

  // Seconds of the last minibatch.
  double push_seconds() const { return push_seconds_; }
  double pull_seconds() const { return pull_seconds_; }
  double idle_seconds() const { return idle_seconds_; }

 private:
  void open();
  comm::Message ask(int server, const comm::Message& message, std::span<std::byte> into, double seconds);
  comm::Message ask_scheduler(const comm::Message& message, std::span<std::byte> into = {});
  FlightPlan plan_of(size_t requests);
  double check_late();
  std::byte* at(void* vector, const Range& range) const;
  const std::byte* at(const void* vector, const Range& range) const;
  size_t bytes_of(const Range& range) const;
  bool fetch(int64_t version, void* parameters);
  double distance_to_newest();
  int scheduler() const { return options_.workers; }
  int rank_of(const Range& range) const { return options_.workers + range.server; }

  comm::Messenger& messenger_;
  LearnerOptions options_;
  Sharding sharding_;
  size_t element_;
  int64_t state_arrays_ = 0;

  // What was told, on the messenger's thread, which may outlive the learner.
  struct Inbox {
    std::mutex mutex;
    std::condition_variable changed;
    ReleaseHead newest;
    std::optional<StopHead> stop;
    std::string lost;                 // a server
    std::atomic<int64_t> latest{-1};  // minibatch of `newest`; -2: the run has ended
    void told(const comm::Message& message);
  };
  std::shared_ptr<Inbox> inbox_ = std::make_shared<Inbox>();
  ReleaseHead work_;           // at hand
  int64_t held_version_ = -1;  // of the parameters, where all ranges have one
  void* held_ = nullptr;       // where they were pulled to
  std::vector<std::byte> scratch_;
  std::optional<UpdateNorm> update_norm_;
  bool said_goodbye_ = false;
  double said_alive_ = 0;
  double push_seconds_ = 0, pull_seconds_ = 0, idle_seconds_ = 0;
};

}  // namespace yoke::ps
