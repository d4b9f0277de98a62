// Peers with a model, against one device.
#include "yoke/parallel/collab.h"

#include <gtest/gtest.h>

#include <future>

#include "yoke/collab/meeting_server.h"
#include "yoke/engine/worker.h"

namespace yoke::engine {
namespace {

constexpr int64_t kSteps = 5, kTarget = 32;

// A small network with its optimizer, as `yoke collab` makes it.
struct CollabNet {
  explicit CollabNet(int64_t batch, const std::string& optimizer) {
    WorkerOptions options;
    options.model.name = "mlp";
    options.model.sizes = {6, 16, 3};
    options.optimizer.optimizer = optimizer;
    options.optimizer.momentum = optimizer == "sgd" ? 0.9 : 0;
    options.type = torch::kFloat64;
    worker = make_worker(options);
    parallel::CollabReplicaOptions replica_options;
    replica_options.batch = batch;
    replica_options.learning_rate = [](int64_t step) { return 0.1 / static_cast<double>(step + 1); };
    replica_options.samples = [](int64_t first, int64_t count) {
      torch::Tensor index = torch::arange(first, first + count, torch::kFloat64).unsqueeze(1);
      torch::Tensor inputs = (index * 0.7 + torch::arange(6, torch::kFloat64)).sin();
      return parallel::CollabReplicaOptions::Samples{{inputs},
                                                     torch::arange(first, first + count, torch::kLong) % 3};
    };
    replica = parallel::make_collab_trainer(*worker->strategy, worker->model, std::move(replica_options));
  }
  double distance(const CollabNet& other) const {
    double largest = 0;
    auto own = worker->model.module->parameters(), others = other.worker->model.module->parameters();
    for (size_t i = 0; i < own.size(); ++i)
      largest = std::max(largest, (own[i] - others[i]).abs().max().item<double>());
    return largest;
  }

  std::unique_ptr<Worker> worker;
  std::unique_ptr<collab::Trainer> replica;
};

void train_alone(CollabNet& net) {
  std::vector<float> gradient(static_cast<size_t>(net.replica->elements()));
  for (int64_t step = 0; step < kSteps; ++step) {
    net.replica->compute(step * kTarget, kTarget);
    net.replica->read_gradient(gradient);
    net.replica->step(gradient, step);
    net.replica->discard();
  }
}

TEST(CollabReplica, PeersOfUnequalBatchesEqualOneDevice) {
  for (const char* optimizer : {"sgd", "adamw"}) {
    collab::Ticket ticket;
    ticket.run_id = "parity";
    ticket.meeting = {.host = "127.0.0.1", .port = 0};
    CollabNet alone(kTarget, optimizer), five(5, optimizer), seven(7, optimizer), twenty(20, optimizer);
    collab::MeetingOptions options;
    options.run = nlohmann::json::object();
    options.steps = kSteps;
    options.elements = alone.replica->elements();
    options.target_batch = kTarget;
    options.min_peers = 3;
    collab::MeetingServer server(ticket, options);
    ticket.meeting = server.address();
    collab::PeerOptions peer;
    peer.run = options.run;
    std::vector<std::future<collab::PeerSummary>> peers;
    for (CollabNet* net : {&five, &seven, &twenty})
      peers.push_back(std::async(std::launch::async, [&, net] {
        return collab::run_peer(ticket, collab::Identity::random(), *net->replica, peer);
      }));
    for (auto& one : peers) EXPECT_TRUE(one.get().over);
    train_alone(alone);
    EXPECT_LT(five.distance(alone), 1e-6) << optimizer;
    EXPECT_EQ(five.distance(seven), 0) << optimizer;
    EXPECT_EQ(five.distance(twenty), 0) << optimizer;
  }
}

TEST(CollabReplica, TheStateMovesToAnotherPeer) {
  CollabNet one(8, "adamw"), other(8, "adamw");
  train_alone(one);
  EXPECT_GT(one.distance(other), 0);
  EXPECT_EQ(one.replica->state_bytes(), other.replica->state_bytes());
  other.replica->restore(one.replica->state(), kSteps);
  EXPECT_EQ(one.distance(other), 0);
  EXPECT_EQ(one.replica->state(), other.replica->state());
}

TEST(CollabReplica, DiscardedGradientsLeaveNoTrace) {
  CollabNet net(8, "sgd");
  net.replica->compute(0, 8);
  net.replica->discard();
  std::vector<float> gradient(static_cast<size_t>(net.replica->elements()), 1.0f);
  net.replica->read_gradient(gradient);
  EXPECT_EQ(gradient, std::vector<float>(gradient.size()));
}

}  // namespace
}  // namespace yoke::engine
