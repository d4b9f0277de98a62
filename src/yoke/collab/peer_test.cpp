// Whole runs: a meeting point and peers as threads, with a trainer whose gradients are known.
#include "yoke/collab/peer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <future>
#include <thread>

#include "yoke/base/random.h"
#include "yoke/collab/falsify.h"
#include "yoke/collab/meeting_server.h"

namespace yoke::collab {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr size_t kElements = 5000;

// Minimises the mean of |w - sample|^2 / 2 by SGD; sample i is a fixed random vector.
class QuadraticTrainer : public Trainer {
 public:
  explicit QuadraticTrainer(int64_t batch, float rate = 0.5f)
      : batch_(batch), rate_(rate), weights_(kElements), sum_(kElements) {}

  static float sample(int64_t index, size_t k) {
    return static_cast<float>(mix_bits(static_cast<uint64_t>(index) * kElements + k) % 1000) / 1000;
  }

  int64_t batch() const override { return batch_; }
  int64_t elements() const override { return kElements; }
  int64_t state_bytes() const override { return kElements * sizeof(float); }
  double compute(int64_t first, int64_t count) override {
    before_batch(first);
    double loss = 0;
    for (int64_t i = first; i < first + count; ++i) {
      for (size_t k = 0; k < kElements; ++k) {
        const double error = weights_[k] - sample(i, k) - skew;
        sum_[k] += error;
        loss += error * error / 2;
      }
    }
    samples_ += count;
    return loss / static_cast<double>(count);
  }
  void discard() override {
    samples_ = 0;
    std::fill(sum_.begin(), sum_.end(), 0.0);
  }
  void read_gradient(std::span<float> into) override {
    before_averaging();
    for (size_t k = 0; k < kElements; ++k)
      into[k] = samples_ == 0 ? 0 : static_cast<float>(sum_[k] / static_cast<double>(samples_));
    falsify(lie, ++lies_, into);
  }
  void step(std::span<const float> gradient, int64_t) override {
    for (size_t k = 0; k < kElements; ++k) weights_[k] -= rate_ * gradient[k];
  }
  std::vector<std::byte> state() override {
    std::vector<std::byte> bytes(kElements * sizeof(float));
    std::memcpy(bytes.data(), weights_.data(), bytes.size());
    return bytes;
  }
  void restore(const std::vector<std::byte>& state, int64_t) override {
    std::memcpy(weights_.data(), state.data(), state.size());
  }
  const std::vector<float>& weights() const { return weights_; }

  std::function<void(int64_t)> before_batch = [](int64_t) {};
  std::function<void()> before_averaging = [] {};
  fault::Effect lie = fault::Effect::kNone;
  float skew = 0;  // of this peer's data

 private:
  int64_t batch_;
  float rate_;
  int64_t samples_ = 0;
  uint64_t lies_ = 0;
  std::vector<float> weights_;
  std::vector<double> sum_;
};

struct TestRun {
  explicit TestRun(int64_t steps, int64_t target, int64_t min_peers = 1, Robust robust = Robust::kNone,
                   double quorum_timeout = 30) {
    options.run = {{"model", "quadratic"}};
    options.steps = steps;
    options.elements = kElements;
    options.target_batch = target;
    options.min_peers = min_peers;
    options.robust = robust;
    options.suspects = 1;
    options.timeout = 10;
    options.quorum_timeout = quorum_timeout;
    ticket.run_id = "test-run";
    ticket.meeting = {.host = "127.0.0.1", .port = 0};
    server.emplace(ticket, options);
    ticket.meeting = server->address();
    peer.run = options.run;
    peer.timeout = 10;
  }
  // Before anybody has joined.
  template <class Change>
  void restart(Change&& change) {
    change(options);
    server.reset();
    server.emplace(ticket, options);
  }
  std::future<PeerSummary> start(Trainer& trainer, PeerOptions how, Identity identity = Identity::random()) {
    return std::async(std::launch::async,
                      [this, &trainer, how, identity = std::make_shared<Identity>(std::move(identity))] {
                        return run_peer(ticket, *identity, trainer, how);
                      });
  }
  std::future<PeerSummary> start(Trainer& trainer) { return start(trainer, peer); }

  // Until peer 0 is in this state.
  void wait_for_state(const std::string& state) const {
    MeetingClient watcher(ticket, Deadline::after(10));
    for (Deadline deadline = Deadline::after(20); !deadline.passed(); std::this_thread::yield()) {
      nlohmann::json peers = watcher.call({{"type", "watch"}}, Deadline::after(10)).at("peers");
      if (!peers.empty() && peers[0].at("state") == state) return;
    }
    FAIL() << "peer 0 is not " << state;
  }

  void wait_for_peers(size_t count) const {
    MeetingClient watcher(ticket, Deadline::after(10));
    for (Deadline deadline = Deadline::after(20); !deadline.passed(); std::this_thread::yield())
      if (watcher.call({{"type", "watch"}}, Deadline::after(10)).at("peers").size() >= count) return;
    FAIL() << "fewer than " << count << " peers";
  }

  Ticket ticket;
  MeetingOptions options;
  std::optional<MeetingServer> server;
  PeerOptions peer;
};

// One device on the same samples, in batches of `target`.
std::vector<float> one_device(int64_t steps, int64_t target) {
  QuadraticTrainer trainer(target);
  std::vector<float> gradient(kElements);
  for (int64_t step = 0; step < steps; ++step) {
    trainer.compute(step * target, target);
    trainer.read_gradient(gradient);
    trainer.step(gradient, step);
    trainer.discard();
  }
  return trainer.weights();
}

double distance_between(const std::vector<float>& a, const std::vector<float>& b) {
  double largest = 0;
  for (size_t k = 0; k < a.size(); ++k) largest = std::max<double>(largest, std::abs(a[k] - b[k]));
  return largest;
}

TEST(Peer, ThreePeersOfUnequalBatchesEqualOneDevice) {
  TestRun run(/*steps=*/8, /*target=*/32, /*min_peers=*/3);
  QuadraticTrainer five(5), seven(7), twenty(20);
  auto a = run.start(five), b = run.start(seven), c = run.start(twenty);
  PeerSummary first = a.get(), second = b.get(), third = c.get();
  EXPECT_TRUE(first.over && second.over && third.over);
  EXPECT_EQ(first.epoch, 8);
  EXPECT_LT(distance_between(five.weights(), one_device(8, 32)), 1e-6);
  EXPECT_EQ(five.weights(), seven.weights());
  EXPECT_EQ(five.weights(), twenty.weights());
  EXPECT_EQ(first.samples + second.samples + third.samples, 8 * 32);
}

TEST(Peer, APeerBehindAFirewallTakesPart) {
  TestRun run(5, 32, 3);
  PeerOptions client = run.peer;
  client.client_only = true;
  QuadraticTrainer five(5), seven(7), twenty(20);
  auto a = run.start(five), b = run.start(seven, client), c = run.start(twenty, client);
  EXPECT_TRUE(a.get().over && b.get().over && c.get().over);
  EXPECT_LT(distance_between(seven.weights(), one_device(5, 32)), 1e-6);
}

// Peers that throw inside a batch disappear without a word, as a killed process does.
struct Killed {};

TEST(Peer, WhenAPeerDiesInMidBatchTheStepHasAllSamplesAllTheSame) {
  TestRun run(6, 32, 2);
  QuadraticTrainer steady(4), doomed(4);
  doomed.before_batch = [batches = 0](int64_t) mutable {
    if (++batches == 3) throw Killed();
  };
  std::promise<void> gone;
  steady.before_batch = [dead = gone.get_future().share()](int64_t) { dead.wait(); };
  PeerOptions options = run.peer;
  auto a = run.start(steady, options);
  run.wait_for_state("waiting");
  auto b = run.start(doomed, options);
  EXPECT_THROW(b.get(), Killed);
  gone.set_value();
  QuadraticTrainer third(4);  // the quorum is two
  auto c = run.start(third);
  EXPECT_TRUE(a.get().over);
  PeerSummary late = c.get();
  EXPECT_GE(late.downloads, 1);
  EXPECT_LT(distance_between(steady.weights(), one_device(6, 32)), 1e-6);
  EXPECT_EQ(steady.weights(), third.weights());
}

TEST(Peer, APeerThatReturnsTakesTheStateFromAnother) {
  TestRun run(40, 16);
  QuadraticTrainer steady(4);
  std::promise<void> half;
  PeerOptions with_signal = run.peer;
  with_signal.on_step = [&](const PeerOptions::StepNews& news) {
    if (news.epoch != 10) return;
    half.set_value();
    run.wait_for_peers(2);
  };
  auto a = run.start(steady, with_signal);
  half.get_future().wait();
  QuadraticTrainer late(4);
  PeerOptions brief = run.peer;
  brief.most_steps = 2;
  PeerSummary stay = run.start(late, brief).get();
  EXPECT_GE(stay.downloads, 1);
  EXPECT_TRUE(stay.over || stay.steps == 2);
  EXPECT_TRUE(a.get().over);
  EXPECT_LT(distance_between(steady.weights(), one_device(40, 16)), 1e-6);
}

TEST(Peer, ATicketOfAnotherRunIsRefused) {
  TestRun run(1, 16);
  Ticket other = run.ticket;
  other.key = net::Secret::random();
  QuadraticTrainer trainer(4);
  EXPECT_THAT([&] { run_peer(other, Identity::random(), trainer, run.peer); },
              ThrowsMessage<Error>(HasSubstr("belongs to another run")));
  EXPECT_TRUE(run.start(trainer).get().over);
}

TEST(Peer, TwoPeersCannotShareAnIdentity) {
  TestRun run(1, 16, 2);
  QuadraticTrainer one(4), two(4), three(4);
  Identity identity = Identity::random();
  PeerOptions options = run.peer;
  auto a = std::async(std::launch::async, [&] { return run_peer(run.ticket, identity, one, options); });
  run.wait_for_state("waiting");
  EXPECT_THAT([&] { run_peer(run.ticket, identity, two, options); },
              ThrowsMessage<Error>(HasSubstr("already in this run")));
  EXPECT_TRUE(run.start(three).get().over);
  EXPECT_TRUE(a.get().over);
}

TEST(Peer, WithoutQuorumTheRunEndsWithAReason) {
  TestRun run(1, 16, 3, Robust::kNone, /*quorum_timeout=*/0.5);
  QuadraticTrainer trainer(4);
  EXPECT_THAT([&] { run.start(trainer).get(); }, ThrowsMessage<CommError>(HasSubstr("quorum lost")));
}

// The meeting point dies in the middle of a batch; another one with the same ticket and address takes its
// place.
TEST(Peer, PeersReturnToAMeetingPointThatCameBackAndTheRunEqualsOneDevice) {
  const auto record = std::filesystem::temp_directory_path() / fmt::format("meeting-{}.json", ::getpid());
  TestRun run(/*steps=*/12, /*target=*/32, /*min_peers=*/2);
  MeetingOptions options = run.options;
  run.server.reset();
  run.server.emplace(run.ticket, options, record);
  QuadraticTrainer one(4), two(5);
  std::promise<void> reached, gone;
  std::shared_future<void> go = gone.get_future().share();
  one.before_batch = [&, batches = 0](int64_t) mutable {
    if (++batches != 20) return;
    reached.set_value();
    go.wait();
  };
  auto a = run.start(one), b = run.start(two);
  reached.get_future().wait();
  run.server.reset();
  std::optional<MeetingRecord> last = read_record(record);
  ASSERT_TRUE(last);
  EXPECT_EQ(last->newest.next_sample, last->newest.epoch * 32);
  options.returns = true;
  options.known = {last->previous, last->newest};
  run.server.emplace(run.ticket, options, record);
  gone.set_value();
  PeerSummary first = a.get(), second = b.get();
  EXPECT_TRUE(first.over && second.over);
  EXPECT_EQ(first.reconnects, 1);
  EXPECT_LT(distance_between(one.weights(), one_device(12, 32)), 1e-6);
  EXPECT_EQ(one.weights(), two.weights());
  std::filesystem::remove(record);
}

TEST(Peer, AMeetingPointThatDoesNotReturnEndsThePeerWithinItsPatience) {
  TestRun run(1000, 32);
  QuadraticTrainer trainer(4);
  std::promise<void> reached;
  PeerOptions options = run.peer;
  options.reconnect = 0.1;
  options.on_step = [&](const PeerOptions::StepNews& news) {
    if (news.epoch == 2) reached.set_value();
  };
  auto a = run.start(trainer, options);
  reached.get_future().wait();
  run.server.reset();
  EXPECT_THAT([&] { a.get(); }, ThrowsMessage<CommError>(HasSubstr("collab.quorum_timeout")));
}

TEST(Peer, RequestsThatComeTooFastWait) {
  TestRun run(1, 16);
  MeetingClient client(run.ticket, Deadline::after(10));
  for (int i = 0; i < 1.2 * MeetingServer::kMaxRequestsPerSecond; ++i)
    EXPECT_EQ(client.call({{"type", "watch"}}, Deadline::after(10)).at("epoch"), 0);
}

// Of four speeds; three leave in the middle and come back.
TEST(Peer, EightPeersOfWhomThreeComeAndGoEqualOneDevice) {
  constexpr int64_t kSteps = 30, kTarget = 64;
  TestRun run(kSteps, kTarget, /*min_peers=*/5);
  std::vector<std::unique_ptr<QuadraticTrainer>> trainers;
  std::vector<std::future<PeerSummary>> peers;
  for (int i = 0; i < 8; ++i) {
    trainers.push_back(std::make_unique<QuadraticTrainer>(1 + i % 4));
    PeerOptions how = run.peer;
    if (i >= 5) how.most_steps = 4;
    peers.push_back(run.start(*trainers.back(), how));
  }
  for (size_t i = 5; i < 8; ++i) {
    peers[i].get();
    peers[i] = run.start(*trainers[i]);
  }
  for (auto& peer : peers) EXPECT_TRUE(peer.get().over);
  EXPECT_LT(distance_between(trainers[0]->weights(), one_device(kSteps, kTarget)), 1e-5);
  for (size_t i = 1; i < 5; ++i) EXPECT_EQ(trainers[i]->weights(), trainers[0]->weights());
}

// 4 x 4 peers of unequal batches; 5, of which one accepts no connections; 9 in groups of 2, in four rounds.
TEST(Peer, PeersOnAGridEqualOneDevice) {
  for (auto [peers, size] : {std::pair{16, 4}, {5, 3}, {9, 2}}) {
    constexpr int64_t kSteps = 3, kTarget = 96;
    TestRun run(kSteps, kTarget, peers);
    run.restart([&](MeetingOptions& options) { options.group_size = size; });
    std::vector<std::unique_ptr<QuadraticTrainer>> trainers;
    std::vector<std::future<PeerSummary>> all;
    for (int i = 0; i < peers; ++i) {
      trainers.push_back(std::make_unique<QuadraticTrainer>(1 + i % 4));
      PeerOptions how = run.peer;
      how.client_only = i == 1;
      how.on_step = [size = size](const PeerOptions::StepNews& news) { EXPECT_LE(news.members, 2 * size); };
      all.push_back(run.start(*trainers.back(), how));
    }
    for (auto& one : all) EXPECT_TRUE(one.get().over);
    EXPECT_LT(distance_between(trainers[0]->weights(), one_device(kSteps, kTarget)), 1e-6) << peers;
    for (const auto& one : trainers)
      EXPECT_EQ(one->weights(), trainers[0]->weights()) << "not one bit differs";
  }
}

// It dies when it should average; its group goes on without it, the others do not notice.
TEST(Peer, APeerLostInAGridDoesNotStopTheOthers) {
  constexpr int64_t kSteps = 6, kTarget = 64;
  TestRun run(kSteps, kTarget, /*min_peers=*/8);
  run.restart([](MeetingOptions& options) {
    options.group_size = 3;
    options.timeout = 3;
  });
  run.peer.timeout = 3;
  std::vector<std::unique_ptr<QuadraticTrainer>> trainers;
  std::vector<std::future<PeerSummary>> all;
  for (int i = 0; i < 9; ++i) {
    trainers.push_back(std::make_unique<QuadraticTrainer>(1 + i % 4));
    if (i == 8)
      trainers.back()->before_averaging = [times = 0]() mutable {
        if (++times == 3) throw Killed();
      };
    all.push_back(run.start(*trainers.back()));
  }
  EXPECT_THROW(all.back().get(), Killed);
  all.pop_back();
  for (auto& one : all) EXPECT_TRUE(one.get().over);
  for (size_t i = 1; i < 8; ++i) EXPECT_EQ(trainers[i]->weights(), trainers[0]->weights());
}

// Ten peers, of whom three lie: how far the result is from the best one, where the start is 0.5 away. An
// error: a peer was refused.
struct Crowd {
  std::vector<std::string> refused = std::vector<std::string>(10);
  double error = 0;
};
Crowd train_with(Robust robust, const std::function<void(QuadraticTrainer&, int peer)>& change, int64_t steps,
                 int64_t min_peers = 10) {
  constexpr int kPeers = 10;
  TestRun run(steps, /*target=*/80, min_peers, robust);
  run.restart([](MeetingOptions& options) {
    options.suspects = 3;
    options.roles = RolePolicy::kShares;
  });
  std::vector<std::unique_ptr<QuadraticTrainer>> trainers;
  std::vector<std::future<PeerSummary>> peers;
  for (int i = 0; i < kPeers; ++i) {
    trainers.push_back(std::make_unique<QuadraticTrainer>(4, 0.2f));
    change(*trainers.back(), i);
    peers.push_back(run.start(*trainers.back()));
  }
  Crowd crowd;
  for (size_t i = 0; i < kPeers; ++i) try {
      EXPECT_TRUE(peers[i].get().over);
    } catch (const Error& error) {
      crowd.refused[i] = error.what();
    }
  for (float weight : trainers[0]->weights()) crowd.error += std::abs(weight - 0.5) / kElements;
  return crowd;
}

// A sign flip is as large as an honest gradient; the others stay far out, but not for long enough to be
// excluded.
TEST(Peer, ThreeLiarsOfTenDoNotStopTheLossFromFalling) {
  using fault::Effect;
  for (Robust robust : {Robust::kClip, Robust::kCenteredClip, Robust::kMedian, Robust::kKrum})
    for (Effect lie : {Effect::kFlip, Effect::kNoise, Effect::kScale, Effect::kDrift}) {
      const Crowd crowd = train_with(
          robust,
          [&](QuadraticTrainer& trainer, int peer) {
            if (peer >= 7) trainer.lie = lie;
          },
          9);
      EXPECT_LT(crowd.error, 0.35) << to_string(robust) << " " << static_cast<int>(lie);
    }
  const auto flips = [&](QuadraticTrainer& trainer, int peer) {
    if (peer >= 7) trainer.lie = Effect::kCorrupt;
  };
  EXPECT_GT(train_with(Robust::kNone, flips, 3).error, 1);
}

TEST(Peer, ALiarIsExcludedByNameAndTheOthersFinish) {
  const Crowd crowd = train_with(
      Robust::kMedian,
      [](QuadraticTrainer& trainer, int peer) {
        if (peer == 9) trainer.lie = fault::Effect::kScale;
      },
      40, 9);
  EXPECT_THAT(crowd.refused[9], HasSubstr("this peer is excluded from the run"));
  for (size_t i = 0; i < 9; ++i) EXPECT_EQ(crowd.refused[i], "");
  EXPECT_LT(crowd.error, 0.1);
}

// Each has other data, and one has a few samples only.
TEST(Peer, HonestPeersWithUnequalDataStay) {
  for (Robust robust : {Robust::kClip, Robust::kCenteredClip, Robust::kMedian, Robust::kKrum}) {
    const Crowd crowd = train_with(
        robust,
        [](QuadraticTrainer& trainer, int peer) {
          trainer.skew = peer == 9 ? 1 : 0.02f * static_cast<float>(peer);
        },
        40);
    EXPECT_EQ(crowd.refused, std::vector<std::string>(10)) << to_string(robust);
  }
}

TEST(Peer, StrangersOnThePortDisturbNobody) {
  TestRun run(3, 16);
  const net::Address where = run.server->address();
  std::vector<net::Descriptor> strangers;
  for (int i = 0; i < 20; ++i) {
    strangers.push_back(net::connect_to(where, Deadline::after(10)));
    const std::string text = "GET / HTTP/1.1\r\n\r\n";
    EXPECT_GT(::write(strangers.back().get(), text.data(), text.size()), 0);
  }
  QuadraticTrainer trainer(4);
  EXPECT_TRUE(run.start(trainer).get().over);
}

}  // namespace
}  // namespace yoke::collab
