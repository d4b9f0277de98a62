// Workers that are several ranks each, with a part of the parameters on every one of them.
#include <gmock/gmock.h>

#include <chrono>
#include <cmath>
#include <future>
#include <mutex>
#include <utility>

#include "yoke/comm/run_ranks.h"
#include "yoke/ps/connect.h"
#include "yoke/ps/learner.h"
#include "yoke/ps/replica_messenger.h"
#include "yoke/ps/server.h"

namespace yoke::ps {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Elements of the tensors of each part.
using Parts = std::vector<std::vector<int64_t>>;

struct Lesson {
  ReplicaRanks ranks;
  Parts parts;
  plan::PolicyOptions policy;
  int servers = 2;
  int64_t updates = 20;
  double clip_norm = 0;
  // Filled by run():
  Accounting counts{};
  std::vector<double> values{};             // of all parts, at the end
  std::vector<int64_t> pushed{}, pulled{};  // bytes, by rank
  std::vector<std::string> news{};

  LearnerOptions options(comm::Communicator& replica) const {
    LearnerOptions options;
    options.workers = ranks.replicas;
    options.servers = servers;
    options.ranks = ranks;
    options.type = DataType::kFloat64;
    options.range_bytes = 2048;
    options.timeout = 20;
    options.one_version = policy.rule == plan::Rule::kSync || plan::traits_of(policy.rule).cancels;
    ReplicaLinks links;
    links.part = replica.rank();
    links.parts = replica.size();
    int64_t at = 0;
    for (size_t part = 0; part < parts.size(); ++part) {
      if (static_cast<int>(part) == links.part) links.begin = at;
      for (int64_t tensor : parts[part]) at += tensor;
      if (static_cast<int>(part) == links.part) links.end = at;
      options.tensors.insert(options.tensors.end(), parts[part].begin(), parts[part].end());
      options.tensors.push_back(0);
    }
    links.sum = [&replica](std::span<double> numbers) {
      comm::Buffer buffer(numbers.data(), static_cast<int64_t>(numbers.size()), DataType::kFloat64);
      replica.all_reduce(buffer).wait();
    };
    links.from_first = [&replica](std::span<std::byte> bytes) {
      replica.broadcast(comm::Buffer(bytes.data(), static_cast<int64_t>(bytes.size()), DataType::kUint8), 0)
          .wait();
    };
    options.replica = links;
    return options;
  }

  void run(const std::function<void(Learner&, comm::Communicator& replica, int worker)>& body) {
    std::vector<std::unique_ptr<ReplicaMessenger>> views;
    std::vector<std::unique_ptr<Server>> shops;
    LocalGroup group(ranks.ranks() + servers);
    for (int s = 0; s < servers; ++s) {
      ServerOptions options;
      options.workers = ranks.replicas;
      options.servers = servers;
      options.ranks = ranks;
      options.make_updater = make_optimizer({});
      options.scheduler.policy = policy;
      options.scheduler.updates = updates;
      options.scheduler.clip_norm = clip_norm;
      options.scheduler.say = [this](const std::string& text) { news.push_back(text); };
      options.report = [this](const Accounting& all, int64_t, int64_t) {
        counts = all;
        return std::string("counted");
      };
      views.push_back(std::make_unique<ReplicaMessenger>(group.messenger(ranks.ranks() + s), ranks));
      shops.push_back(std::make_unique<Server>(*views.back(), std::move(options)));
    }
    pushed.resize(static_cast<size_t>(ranks.ranks()));
    pulled = pushed;
    comm::run_ranks(ranks.ranks(), [&](comm::Communicator& world) {
      const int rank = world.rank(), worker = ranks.replica_of(rank);
      auto replica = world.split(worker, rank, "replica");
      ReplicaMessenger messenger(group.messenger(rank), ranks);
      Learner learner(messenger, options(*replica));
      if (worker == 0) {
        std::vector<double> ones(static_cast<size_t>(learner.elements()), 1);
        learner.assign(0, ones.data(), 0, 0);
      }
      learner.join();
      body(learner, *replica, worker);
      pushed[static_cast<size_t>(rank)] = learner.bytes_pushed();
      pulled[static_cast<size_t>(rank)] = learner.bytes_pulled();
      replica->barrier().wait();
      learner.goodbye();
      replica->barrier().wait();
    });
    for (auto& shop : shops) shop->run();
  }

  // Every part's gradient is its parameters times a number of the worker.
  void train(const std::function<double(int worker)>& factor) {
    std::mutex mutex;
    std::vector<std::vector<double>> ends(parts.size());
    run([&](Learner& learner, comm::Communicator& replica, int worker) {
      std::vector<double> own(static_cast<size_t>(learner.elements()));
      while (learner.wait()) {
        if (!learner.pull(own.data())) continue;
        std::vector<double> gradient(own);
        for (double& one : gradient) one *= factor(worker);
        learner.push({gradient.data(), 1.0, 0.1, 0});
      }
      if (worker != 0) return;
      EXPECT_EQ(learner.fetch_state({own.data()}).version, updates);
      if (learner.leads()) learner.report();
      std::lock_guard lock(mutex);
      ends[static_cast<size_t>(replica.rank())] = own;
    });
    for (const std::vector<double>& one : ends) values.insert(values.end(), one.begin(), one.end());
  }
};

TEST(PsReplica, RanksAreNumberedAsInAMesh) {
  const ReplicaRanks ranks{2, 3, 2};  // pipeline=3, data=2, tensor=2
  EXPECT_EQ(ranks.ranks(), 12);
  EXPECT_THAT(ranks.ranks_of(1), ElementsAre(2, 3, 6, 7, 10, 11));
  EXPECT_EQ(ranks.first_of(1), 2);
  EXPECT_EQ(ranks.part_of(7), 3);
  EXPECT_EQ(role_name(ranks, 7), "worker 1, stage 1, slice 1");
  EXPECT_EQ(worker_name(ranks, 0), "worker 0 (ranks 0, 1, 4, 5, 8, 9)");
  EXPECT_EQ(worker_name({4}, 3), "worker 3 (rank 3)");
  EXPECT_EQ(role_name({4}, 3), "worker 3");
}

TEST(PsReplica, SyncIsTheMeanOfAllReplicasAndEachRankMovesItsOwnPart) {
  for (int servers : {1, 3}) {
    Lesson lesson{.ranks = {3, 2, 1},
                  .parts = {{100, 3, 5000}, {700}},
                  .policy = {plan::Rule::kSync, 3, 0, 0},
                  .servers = servers};
    lesson.train([](int worker) { return worker + 1.0; });
    EXPECT_THAT(lesson.values, Each(::testing::DoubleNear(std::pow(1 - 0.1 * 2, 20), 1e-12)));
    EXPECT_EQ(lesson.values.size(), 5803U);
    EXPECT_EQ(lesson.counts.gradients, 60);
    for (int rank = 0; rank < 6; ++rank) {
      const int64_t elements = rank < 3 ? 5103 : 700;
      EXPECT_EQ(lesson.pushed[static_cast<size_t>(rank)], 20 * elements * 8) << rank;
      EXPECT_EQ(lesson.pulled[static_cast<size_t>(rank)], 20 * elements * 8) << rank;
    }
  }
}

TEST(PsReplica, OneNormClipsAllParts) {
  Lesson lesson{.ranks = {2, 1, 2},
                .parts = {{300}, {600, 100}},
                .policy = {plan::Rule::kSync, 2, 0, 0},
                .updates = 1,
                .clip_norm = 0.5};
  lesson.train([](int) { return 1.0; });
  EXPECT_THAT(lesson.values, Each(::testing::DoubleNear(1 - 0.1 * 0.5 / std::sqrt(1000.0), 1e-8)));
}

TEST(PsReplica, EveryRuleCountsReplicas) {
  for (const std::string& name : plan::rule_names()) {
    Lesson lesson{.ranks = {4, 2, 1},
                  .parts = {{50}, {60, 40}},
                  .policy = {plan::parse_rule(name), 4, 2, 1},
                  .updates = 60};
    lesson.train([](int) { return 0.5; });
    EXPECT_EQ(lesson.counts.gradients, 60 * plan::effective_k(lesson.policy)) << name;
    EXPECT_EQ(lesson.counts.workers.size(), 4U);
  }
}

TEST(PsReplica, APartMayBeWithoutParameters) {
  Lesson lesson{.ranks = {2, 3, 1}, .parts = {{50}, {}, {60}}, .policy = {plan::Rule::kSync, 2, 0, 0}};
  lesson.train([](int) { return 1.0; });
  EXPECT_THAT(lesson.values, Each(::testing::DoubleNear(std::pow(0.9, 20), 1e-12)));
  EXPECT_EQ(lesson.pushed[2], 0);
}

TEST(PsReplica, ARangeThatCrossesPartsIsAnError) {
  const std::vector<int64_t> tensors = {10, 0, 10};
  const Sharding cut(tensors, {.servers = 1, .element_bytes = 8});
  ASSERT_EQ(cut.ranges().size(), 2U);
  EXPECT_EQ(cut.ranges()[1].begin, 10);
}

TEST(PsReplica, TheLossOfARankIsTheLossOfItsWorker) {
  const ReplicaRanks ranks{2, 2, 1};
  LocalGroup group(5);
  ReplicaMessenger server(group.messenger(4), ranks);
  EXPECT_EQ(server.rank(), 2);
  EXPECT_EQ(server.size(), 3);
  // Others are lost when the group ends: later losses do not count.
  auto lost = std::make_shared<std::promise<std::pair<int, std::string>>>();
  server.on_peer_lost([lost, first = true](int peer, const std::string& why) mutable {
    if (std::exchange(first, false)) lost->set_value({peer, why});
  });
  server.serve([](int, const comm::Message&, size_t) { return std::span<std::byte>(); },
               [](int, const comm::Message&, comm::Messenger::Answer) {});
  group.close(3);  // stage 1 of worker 1
  auto told = lost->get_future();
  ASSERT_EQ(told.wait_for(std::chrono::seconds(30)), std::future_status::ready);
  const auto [peer, why] = told.get();
  EXPECT_EQ(peer, 1);
  EXPECT_THAT(why, HasSubstr("its rank 3"));
}

}  // namespace
}  // namespace yoke::ps
