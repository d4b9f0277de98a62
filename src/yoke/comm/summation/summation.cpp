#include "yoke/comm/summation/summation.h"

#include <array>
#include <deque>
#include <exception>
#include <list>
#include <mutex>

#include "yoke/base/clock.h"
#include "yoke/base/error.h"
#include "yoke/base/log.h"
#include "yoke/base/units.h"
#include "yoke/comm/summation/announcement.h"

namespace yoke::comm {
namespace {

// Workers may compute, evaluate or save for long; the job's failure detection ends the wait if they are gone.
constexpr double kIdleSeconds = 30 * 24 * 3600.0;
// Summations that a spare rank has memory for at the same time: the next one starts while the last ends.
constexpr size_t kSlots = 2;
// A trial of whether summation pays.
constexpr size_t kTrialElements = 1 << 20;
constexpr int kTrials = 2;

// Tells the spare ranks what comes next. Only worker 0 does.
class Announcer {
 public:
  Announcer(Communicator& everyone, int spares) : everyone_(everyone) {
    for (int spare = everyone.size() - spares; spare < everyone.size() && everyone.rank() == 0; ++spare)
      spares_.push_back(spare);
  }
  Announcer(const Announcer&) = delete;
  // After a failure announcements may still be on their way: they stay in place until the process ends.
  ~Announcer() {
    forget_sent();
    if (sent_.empty()) return;
    static std::mutex mutex;
    static std::list<std::deque<Sent>> unsent;
    std::lock_guard lock(mutex);
    unsent.push_back(std::move(sent_));
  }

  void tell(const Announcement& announcement) {
    forget_sent();
    if (spares_.empty()) return;
    Sent& sent = sent_.emplace_back();
    sent.announcement = announcement;
    for (int spare : spares_)
      sent.pending.push_back(everyone_.send(buffer_of(sent.announcement), spare, Announcement::kTag,
                                            {.name = "announcement of a summation"}));
  }

  void finish() {
    Announcement last;
    last.last = 1;
    tell(last);
    for (Sent& sent : sent_)
      for (const Pending& pending : sent.pending) pending.wait();
    sent_.clear();
  }

 private:
  struct Sent {
    Announcement announcement;
    std::vector<Pending> pending;
    bool done() const {
      for (const Pending& one : pending)
        if (!one.done()) return false;
      return true;
    }
  };
  void forget_sent() {
    while (!sent_.empty() && sent_.front().done()) sent_.pop_front();
  }

  Communicator& everyone_;
  std::vector<int> spares_;
  std::deque<Sent> sent_;  // a deque: announcements stay in place while they are sent
};

class SummingCommunicator final : public Communicator {
 public:
  SummingCommunicator(Communicator& everyone, int spares, double least_gain)
      : everyone_(everyone),
        workers_(everyone.split(0, everyone.rank(), "data")),
        announcer_(everyone, spares),
        exceptions_(std::uncaught_exceptions()) {
    if (least_gain <= 0) return;
    pays_ = measured_gain() >= least_gain;
    if (rank() == 0)
      log::info("gradients are {}", pays_ ? "summed with spare ranks" : "all-reduced by the workers alone");
  }

  ~SummingCommunicator() override {
    if (std::uncaught_exceptions() > exceptions_) return;  // the job fails, and the spare ranks with it
    try {
      announcer_.finish();
    } catch (const std::exception& error) {
      log::warn("the spare ranks were not told that the workers leave: {}", error.what());
    }
  }

  int rank() const override { return workers_->rank(); }
  int size() const override { return workers_->size(); }
  const std::string& name() const override { return workers_->name(); }
  const std::string& backend() const override { return workers_->backend(); }

  Pending all_reduce(Buffer data, ReduceOp op, const OpOptions& options) override {
    const bool adds = op == ReduceOp::kSum || op == ReduceOp::kMean;
    if (!pays_ || !adds || options.algorithm || data.bytes() < kSummedBytes)
      return workers_->all_reduce(data, op, options);
    return sum(data, op, options);
  }
  Pending reduce(Buffer data, int root, ReduceOp op, const OpOptions& options) override {
    return workers_->reduce(data, root, op, options);
  }
  Pending reduce_scatter(ConstBuffer input, Buffer output, ReduceOp op, const OpOptions& options) override {
    return workers_->reduce_scatter(input, output, op, options);
  }
  Pending all_gather(ConstBuffer input, Buffer output, std::span<const int64_t> counts,
                     const OpOptions& options) override {
    return workers_->all_gather(input, output, counts, options);
  }
  Pending all_to_all(ConstBuffer input, Buffer output, const OpOptions& options) override {
    return workers_->all_to_all(input, output, options);
  }
  Pending broadcast(Buffer data, int root, const OpOptions& options) override {
    return workers_->broadcast(data, root, options);
  }
  Pending gather(ConstBuffer input, Buffer output, int root, const OpOptions& options) override {
    return workers_->gather(input, output, root, options);
  }
  Pending scatter(ConstBuffer input, Buffer output, int root, const OpOptions& options) override {
    return workers_->scatter(input, output, root, options);
  }
  Pending send(ConstBuffer data, int peer, int tag, const OpOptions& options) override {
    return workers_->send(data, peer, tag, options);
  }
  Pending receive(Buffer data, int peer, int tag, const OpOptions& options) override {
    return workers_->receive(data, peer, tag, options);
  }
  Pending barrier(const OpOptions& options) override { return workers_->barrier(options); }
  std::unique_ptr<Communicator> split(int color, int key, const std::string& group_name) override {
    return workers_->split(color, key, group_name);
  }
  Memory allocate(size_t bytes) override { return workers_->allocate(bytes); }
  Memory allocate_common(size_t bytes) override { return workers_->allocate_common(bytes); }

  Counters counters() const override {
    Counters sum = workers_->counters();
    const Counters summed = everyone_.counters();
    sum.operations += summed.operations;
    sum.bytes_sent += summed.bytes_sent;
    sum.bytes_received += summed.bytes_received;
    sum.messages_sent += summed.messages_sent;
    if (summed.algorithm == plan::Algorithm::kSummation) sum.algorithm = summed.algorithm;
    return sum;
  }

  void abandon(const std::string& reason) noexcept override { everyone_.abandon(reason); }

 private:
  Pending sum(Buffer data, ReduceOp op, const OpOptions& options) {
    announcer_.tell({data, op, options});
    return everyone_.all_reduce(
        data, op,
        {.name = options.name, .timeout = options.timeout, .algorithm = plan::Algorithm::kSummation});
  }

  // Alternates both, so that other traffic affects both. The same on all workers.
  double measured_gain() {
    const OpOptions named{.name = "measuring a summation"};
    std::vector<float> data(kTrialElements);
    std::vector<double> seconds(2);  // the workers alone, summation
    auto timed = [&](auto run) {
      workers_->barrier().wait();
      Stopwatch watch;
      run().wait();
      return watch.seconds();
    };
    for (int round = 0; round <= kTrials; ++round) {
      const double alone = timed([&] { return workers_->all_reduce(data, ReduceOp::kSum, named); });
      const double summed = timed([&] { return sum(data, ReduceOp::kSum, named); });
      if (round == 0) continue;  // opens connections
      seconds[0] += alone / kTrials;
      seconds[1] += summed / kTrials;
    }
    workers_->all_reduce(seconds, ReduceOp::kMax).wait();
    if (rank() == 0)
      log::info("measured: {} of gradients are reduced in {} by the workers, in {} with spare ranks",
                format_bytes(kTrialElements * sizeof(float)), format_duration(seconds[0]),
                format_duration(seconds[1]));
    return seconds[0] / seconds[1];
  }

  Communicator& everyone_;
  std::unique_ptr<Communicator> workers_;
  Announcer announcer_;
  int exceptions_;
  bool pays_ = true;
};

// Memory of one summation on a spare rank. Only the pages of its own parts are ever touched.
struct Slot {
  Memory memory;
  Pending pending;
};

Announcement next_announcement(Communicator& everyone) {
  Announcement next;
  everyone
      .receive(buffer_of(next), 0, Announcement::kTag,
               {.name = "announcement of a summation", .timeout = kIdleSeconds})
      .wait();
  next.check();
  return next;
}

}  // namespace

std::unique_ptr<Communicator> make_summing(Communicator& everyone, int spares, double least_gain) {
  return std::make_unique<SummingCommunicator>(everyone, spares, least_gain);
}

void sum_for_workers(Communicator& everyone) {
  everyone.split(/*color=*/-1, everyone.rank(), "");
  std::array<Slot, kSlots> slots;
  for (size_t turn = 0;; ++turn) {
    const Announcement next = next_announcement(everyone);
    if (next.last == 1) break;
    Slot& slot = slots[turn % kSlots];
    slot.pending.wait();
    if (slot.memory.bytes < next.bytes()) slot.memory = everyone.allocate(next.bytes());
    slot.pending = everyone.all_reduce(
        {slot.memory.data.get(), next.count, static_cast<DataType>(next.type)},
        static_cast<ReduceOp>(next.reduce),
        {.name = next.name.data(), .timeout = next.timeout, .algorithm = plan::Algorithm::kSummation});
  }
  for (Slot& slot : slots) slot.pending.wait();
}

}  // namespace yoke::comm
