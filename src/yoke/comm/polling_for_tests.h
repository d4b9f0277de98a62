// For tests: every operation, small, by polling done() alone. One body for every backend.
#pragma once

#include <fmt/core.h>

#include <functional>
#include <memory>
#include <stdexcept>
#include <thread>
#include <vector>

#include "yoke/comm/queue/queued_communicator.h"

namespace yoke::comm::test {

// A communicator takes its backend for good; here it is the test's.
class Borrowed final : public Backend {
 public:
  explicit Borrowed(Backend& owner) : owner_(owner) {}
  const std::string& name() const override { return owner_.name(); }
  void run(const Operation& operation, Deadline deadline) override { owner_.run(operation, deadline); }
  bool advance(Transfer& transfer) override { return owner_.advance(transfer); }
  void wait_for(std::span<Transfer* const> transfers, Deadline deadline) override {
    owner_.wait_for(transfers, deadline);
  }
  void wake() override { owner_.wake(); }
  std::unique_ptr<Backend> split(std::span<const int> members, uint64_t group, Deadline deadline) override {
    return owner_.split(members, group, deadline);
  }
  Memory allocate(size_t bytes) override { return owner_.allocate(bytes); }
  Counters counters() const override { return owner_.counters(); }

 private:
  Backend& owner_;
};

inline std::unique_ptr<Communicator> communicator_over(Backend& backend, int rank, int size,
                                                       double timeout = 60) {
  JobLink job;
  job.failure = std::make_shared<cluster::Failure>();
  job.recorder = std::make_shared<FlightRecorder>(rank, size, "test", 0);
  GroupInfo group;
  group.rank = rank;
  group.size = size;
  group.timeout = timeout;
  return make_queued(std::make_unique<Borrowed>(backend), group, job);
}

// Throws std::runtime_error that names the operation whose done() stays false for 30 s, and what wait() would
// have thrown.
inline void poll(const Pending& pending, const char* what) {
  Deadline patience = Deadline::after(30);
  while (!pending.done()) {
    if (patience.passed()) throw std::runtime_error(fmt::format("{}: done() stays false", what));
    std::this_thread::yield();
  }
  pending.wait();
}

// `memory`: of so many bytes, of the kind the backend moves.
inline void poll_every_operation(Backend& backend, int rank, int size,
                                 const std::function<std::shared_ptr<void>(size_t)>& memory) {
  constexpr int64_t kCount = 3;
  auto comm = communicator_over(backend, rank, size);
  std::vector<std::shared_ptr<void>> held;
  auto floats = [&](int64_t count) {
    held.push_back(memory(static_cast<size_t>(count) * sizeof(float)));
    return Buffer(held.back().get(), count, DataType::kFloat32);
  };
  const int last = size - 1, next = (rank + 1) % size, before = (rank + size - 1) % size;
  poll(comm->all_reduce(floats(kCount)), "all_reduce");
  poll(comm->reduce(floats(kCount), last), "reduce");
  poll(comm->reduce_scatter(floats(kCount * size), floats(kCount)), "reduce_scatter");
  poll(comm->all_gather(floats(kCount), floats(kCount * size)), "all_gather");
  poll(comm->all_to_all(floats(kCount * size), floats(kCount * size)), "all_to_all");
  poll(comm->broadcast(floats(kCount), last), "broadcast");
  poll(comm->gather(floats(kCount), floats(kCount * size), 0), "gather");
  poll(comm->scatter(floats(kCount * size), floats(kCount), 0), "scatter");
  poll(comm->barrier(), "barrier");
  if (size > 1) {
    Pending sent = comm->send(floats(kCount), next, 5), received = comm->receive(floats(kCount), before, 5);
    poll(received, "receive");
    poll(sent, "send");
  }
  // The last of several, issued at once: those before it run, too.
  std::vector<Pending> all;
  for (int i = 0; i < 5; ++i) all.push_back(comm->all_reduce(floats(kCount)));
  poll(all.back(), "the last of several");
  poll(all.front(), "the first of several");
  poll(comm->barrier(), "the last barrier");
}

// In host memory, zeroed.
inline void poll_every_operation(Backend& backend, int rank, int size) {
  poll_every_operation(backend, rank, size, [](size_t bytes) {
    return std::shared_ptr<void>(new std::byte[bytes + 1](),
                                 [](void* p) { delete[] static_cast<std::byte*>(p); });
  });
}

}  // namespace yoke::comm::test
