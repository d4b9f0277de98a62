// Groups of peers as threads of one process, on the loopback interface.
#pragma once

#include <thread>

#include "yoke/base/random.h"
#include "yoke/collab/group.h"
#include "yoke/collab/ticket.h"

namespace yoke::collab::testing {

class TestGroup {
 public:
  // One peer per part; a peer of `clients` accepts no connections.
  TestGroup(const std::vector<int64_t>& parts, std::vector<double> weights, std::vector<bool> clients = {}) {
    ticket_.run_id = "test";
    ticket_.meeting = {.host = "127.0.0.1", .port = 1};
    job_ = job_ticket(ticket_);
    int64_t begin = 0;
    for (size_t i = 0; i < parts.size(); ++i) {
      const bool client = i < clients.size() && clients[i];
      acceptors_.push_back(client ? nullptr
                                  : std::make_unique<net::Acceptor>(net::Address{.host = "127.0.0.1"}, job_));
      plan_.members.push_back({.peer = static_cast<int>(i),
                               .name = "",
                               .address = client ? "" : acceptors_.back()->address().text(),
                               .weight = weights[i],
                               .begin = begin,
                               .count = parts[i]});
      begin += parts[i];
    }
    plan_.elements = begin;
    for (size_t i = 0; i < parts.size(); ++i) {
      Random random(i + 1);
      for (int64_t k = 0; k < begin; ++k)
        values_.resize(parts.size()), values_[i].push_back(static_cast<float>(random.normal()));
    }
    inputs_ = values_;
    options_.stall = 5;
  }

  GroupPlan plan_of(size_t self) const {
    GroupPlan plan = plan_;
    plan.self = self;
    for (size_t i = 0; i < plan.members.size(); ++i) {
      plan.members[i].send_token = 100 * self + i;
      plan.members[i].receive_token = 100 * i + self;
    }
    return plan;
  }

  // The peers of `who` average at the same time; the others are absent.
  std::vector<GroupResult> run(const std::vector<size_t>& who, std::vector<KeptLinks>* links = nullptr) {
    memory_.resize(values_.size());
    std::vector<GroupResult> results(values_.size());
    std::vector<std::jthread> threads;
    for (size_t self : who)
      threads.emplace_back([this, self, links, &results] {
        GroupOptions options = options_;
        if (links != nullptr) options.links = &(*links)[self];
        options.memory = &memory_[self];
        results[self] = average_in_group(plan_of(self), values_[self], acceptors_[self].get(), job_, options);
      });
    threads.clear();
    return results;
  }
  std::vector<GroupResult> run() {
    std::vector<size_t> all;
    for (size_t i = 0; i < values_.size(); ++i) all.push_back(i);
    return run(all);
  }

  // The weighted mean of the inputs of `who`, in double precision.
  std::vector<double> expected(const std::vector<size_t>& who) const {
    std::vector<double> mean(static_cast<size_t>(plan_.elements));
    double weights = 0;
    for (size_t i : who) weights += plan_.members[i].weight;
    for (size_t i : who)
      for (size_t k = 0; k < mean.size(); ++k) mean[k] += plan_.members[i].weight / weights * inputs_[i][k];
    return mean;
  }

  Ticket ticket_;
  net::JobTicket job_;
  GroupPlan plan_;
  GroupOptions options_;
  std::vector<GroupMemory> memory_;
  std::vector<std::unique_ptr<net::Acceptor>> acceptors_;
  std::vector<std::vector<float>> values_, inputs_;
};

}  // namespace yoke::collab::testing
