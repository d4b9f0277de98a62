// A clock without a machine: every rank has its own, which work moves on by what it is said to take, and a
// message moves on to the time at which it was sent.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <tuple>
#include <vector>

#include "yoke/comm/communicator.h"

namespace yoke::test {

// When each message of a job was sent, by sender, receiver and tag, in order of issue. Thread-safe.
class SendTimes {
 public:
  using Line = std::tuple<int, int, int>;
  void add(const Line& line, double time) {
    std::lock_guard lock(mutex_);
    times_[line].push_back(time);
  }
  double at(const Line& line, size_t number) {
    std::lock_guard lock(mutex_);
    return times_.at(line).at(number);
  }

 private:
  std::mutex mutex_;
  std::map<Line, std::vector<double>> times_;
};

// Passes everything on to `inner`; whoever has waited for a message is not earlier than its sender was.
// Collectives take no time and wait for nobody on this clock.
class LogicalClockCommunicator : public comm::Communicator {
 public:
  // All must outlive it. `clock` belongs to this rank's thread.
  LogicalClockCommunicator(comm::Communicator& inner, SendTimes& times, double& clock)
      : inner_(inner), times_(times), clock_(clock) {}

  comm::Pending send(comm::ConstBuffer data, int peer, int tag, const comm::OpOptions& options) override {
    times_.add({rank(), peer, tag}, clock_);
    return inner_.send(data, peer, tag, options);
  }
  comm::Pending receive(comm::Buffer data, int peer, int tag, const comm::OpOptions& options) override {
    SendTimes::Line line{peer, rank(), tag};
    return comm::Pending(
        std::make_shared<Arrival>(*this, inner_.receive(data, peer, tag, options), line, received_[line]++));
  }

  int rank() const override { return inner_.rank(); }
  int size() const override { return inner_.size(); }
  const std::string& name() const override { return inner_.name(); }
  const std::string& backend() const override { return inner_.backend(); }
  comm::Pending all_reduce(comm::Buffer data, ReduceOp op, const comm::OpOptions& options) override {
    return inner_.all_reduce(data, op, options);
  }
  comm::Pending reduce(comm::Buffer data, int root, ReduceOp op, const comm::OpOptions& options) override {
    return inner_.reduce(data, root, op, options);
  }
  comm::Pending reduce_scatter(comm::ConstBuffer input, comm::Buffer output, ReduceOp op,
                               const comm::OpOptions& options) override {
    return inner_.reduce_scatter(input, output, op, options);
  }
  comm::Pending all_gather(comm::ConstBuffer input, comm::Buffer output, std::span<const int64_t> counts,
                           const comm::OpOptions& options) override {
    return inner_.all_gather(input, output, counts, options);
  }
  comm::Pending all_to_all(comm::ConstBuffer input, comm::Buffer output,
                           const comm::OpOptions& options) override {
    return inner_.all_to_all(input, output, options);
  }
  comm::Pending broadcast(comm::Buffer data, int root, const comm::OpOptions& options) override {
    return inner_.broadcast(data, root, options);
  }
  comm::Pending gather(comm::ConstBuffer input, comm::Buffer output, int root,
                       const comm::OpOptions& options) override {
    return inner_.gather(input, output, root, options);
  }
  comm::Pending scatter(comm::ConstBuffer input, comm::Buffer output, int root,
                        const comm::OpOptions& options) override {
    return inner_.scatter(input, output, root, options);
  }
  comm::Pending barrier(const comm::OpOptions& options) override { return inner_.barrier(options); }
  std::unique_ptr<comm::Communicator> split(int color, int key, const std::string& group) override {
    return inner_.split(color, key, group);
  }
  comm::Memory allocate(size_t bytes) override { return inner_.allocate(bytes); }
  comm::Memory allocate_common(size_t bytes) override { return inner_.allocate_common(bytes); }
  comm::Counters counters() const override { return inner_.counters(); }
  void abandon(const std::string& reason) noexcept override { inner_.abandon(reason); }

 private:
  class Arrival : public comm::Pending::State {
   public:
    Arrival(LogicalClockCommunicator& of, comm::Pending pending, SendTimes::Line line, size_t number)
        : of_(of), pending_(std::move(pending)), line_(std::move(line)), number_(number) {}
    void wait() override {
      pending_.wait();
      of_.clock_ = std::max(of_.clock_, of_.times_.at(line_, number_));
    }
    bool done() override { return pending_.done(); }

   private:
    LogicalClockCommunicator& of_;
    comm::Pending pending_;
    SendTimes::Line line_;
    size_t number_;
  };

  comm::Communicator& inner_;
  SendTimes& times_;
  double& clock_;
  std::map<SendTimes::Line, size_t> received_;
};

}  // namespace yoke::test
