// For tests: ranks as threads of this process, each with its own acceptor on the loopback and its own
// failure.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "yoke/comm/queue/request.h"
#include "yoke/comm/tcp/tcp.h"

namespace yoke::comm::tcp {

// One rank: numbers and describes operations as the queue does.
struct TestRank {
  int rank;
  int size;
  std::unique_ptr<Backend> backend;
  std::shared_ptr<cluster::Failure> failure;
  RequestChecker check;
  uint64_t number = 0;
  double timeout = 20;

  void run(Operation operation, std::optional<plan::Algorithm> algorithm = {}, std::string_view name = {}) {
    operation.algorithm = algorithm;
    operation.descriptor.number = ++number;
    operation.descriptor.set_name(name);
    operation.fingerprint = operation.descriptor.fingerprint();
    backend->run(operation, Deadline::after(timeout));
  }
  Transfer transfer(bool is_send, ConstBuffer data, int peer, int tag, uint64_t number_of_tag = 1) const {
    Transfer out = check.transfer(is_send, data, peer, tag);
    out.descriptor.number = number_of_tag;
    out.fingerprint = out.descriptor.fingerprint();
    return out;
  }
  // Until all are complete, as the queue's thread does it.
  void complete(std::vector<Transfer> transfers) {
    Deadline deadline = Deadline::after(timeout);
    std::vector<Transfer*> left;
    for (Transfer& one : transfers) left.push_back(&one);
    while (!left.empty()) {
      ASSERT_FALSE(deadline.passed()) << left.size() << " transfers are not complete";
      if (std::erase_if(left, [&](Transfer* one) { return backend->advance(*one); }) == 0)
        backend->wait_for(left, Deadline::after(0.02));
    }
  }
};

class TcpRanks {
 public:
  explicit TcpRanks(int size, const TcpSetup& like = {}) : setup_(like) {
    setup_.size = size;
    setup_.group = 7;
    setup_.ticket.job_id = "test";
    for (int rank = 0; rank < size; ++rank) {
      acceptors_.push_back(std::make_unique<net::Acceptor>(net::parse_address("127.0.0.1:0"), setup_.ticket));
      setup_.members.push_back(
          {rank, "host" + std::to_string(rank), "here", 0, acceptors_.back()->address().text()});
    }
  }

  TestRank make(int rank) const {
    TcpSetup setup = setup_;
    setup.rank = rank;
    setup.acceptor = acceptors_[static_cast<size_t>(rank)].get();
    if (!setup.failure) setup.failure = std::make_shared<cluster::Failure>();
    return {rank, setup.size, make_tcp_backend(setup), setup.failure, RequestChecker{rank, setup.size}};
  }

  // `body` on every rank at the same time. What one throws becomes a failure of the test.
  void run(const std::function<void(TestRank&)>& body) const {
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < setup_.size; ++rank) {
      threads.emplace_back([this, rank, &body] {
        try {
          TestRank self = make(rank);
          body(self);
        } catch (const std::exception& error) {
          ADD_FAILURE() << "rank " << rank << ": " << error.what();
        }
      });
    }
    for (std::jthread& thread : threads) thread.join();
  }

 private:
  TcpSetup setup_;
  std::vector<std::unique_ptr<net::Acceptor>> acceptors_;
};

}  // namespace yoke::comm::tcp
