// Ranges that move while the worker computes.
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <mutex>

#include "yoke/base/error.h"
#include "yoke/plan/policies/policy.h"
#include "yoke/ps/test_class.h"
#include "yoke/ps/test_messenger.h"

namespace yoke::ps {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A step whose gradients become complete from the last range to the first, as in backward.
struct OverlappedWorker {
  Learner& learner;
  std::vector<double> parameters, gradient;

  explicit OverlappedWorker(Learner& given)
      : learner(given),
        parameters(static_cast<size_t>(given.elements())),
        gradient(static_cast<size_t>(given.elements())) {}

  bool forward() {
    learner.begin_pull(parameters.data());
    for (size_t i = 0; i < learner.ranges(); ++i) learner.await_range(i);
    return learner.end_pull();
  }
  void fill(size_t index, double factor) {
    const Range& range = learner.range(index);
    for (int64_t i = range.begin; i < range.end(); ++i)
      gradient[static_cast<size_t>(i)] = parameters[static_cast<size_t>(i)] * factor;
  }
  bool backward(double factor, const std::function<void(size_t)>& before_range = {}) {
    learner.begin_push({gradient.data(), parameters[0], /*lr=*/0.1}, parameters.data());
    for (size_t i = learner.ranges(); i-- > 0;) {
      if (before_range) before_range(i);
      fill(i, factor);
      EXPECT_TRUE(learner.push_range(i));
    }
    return learner.end_push();
  }
};

double factor_of(int worker, int64_t version) {
  return 0.3 + 0.17 * worker + 0.01 * static_cast<double>(version % 7);
}

// The parameters at the end of a run.
std::vector<double> values_of(Class lesson, bool overlapped) {
  std::vector<double> last;
  lesson.run([&](Learner& learner, int worker, LocalGroup&) {
    OverlappedWorker own(learner);
    while (learner.wait()) {
      const double factor = factor_of(worker, learner.work().version);
      if (overlapped) {
        const bool counts = !own.forward() || own.backward(factor);
        EXPECT_TRUE(counts);
      } else if (learner.pull(own.parameters.data())) {
        step(learner, own.parameters, factor);
      }
    }
    learner.end_pull();
    learner.pull_at(learner.end().version, own.parameters.data());
    if (worker == 0) last = own.parameters;
  });
  return last;
}

TEST(PsOverlap, GivesTheSameBitsAsPushingAndPullingInTurn) {
  for (int servers : {1, 3})
    for (const char* optimizer : {"sgd", "adamw"}) {
      Class lesson{.policy = {plan::Rule::kSync, 3, 0, 0},
                   .servers = servers,
                   .updates = 40,
                   .tensors = {100, 3, 20'000, 7},
                   .optimizer = {.optimizer = optimizer}};
      const std::vector<double> plain = values_of(lesson, /*overlapped=*/false);
      EXPECT_EQ(values_of(lesson, /*overlapped=*/true), plain) << servers << " " << optimizer;
    }
}

TEST(PsOverlap, WorksOverTcpAndWithCopies) {
  Class lesson{.policy = {plan::Rule::kSync, 2, 0, 0}, .servers = 3, .updates = 20, .backend = "tcp"};
  const std::vector<double> plain = values_of(lesson, /*overlapped=*/false);
  EXPECT_EQ(values_of(lesson, /*overlapped=*/true), plain);
  lesson.replicas = 1;
  EXPECT_EQ(values_of(lesson, /*overlapped=*/true), plain);
}

TEST(PsOverlap, WorkersMayMixBothWays) {
  Class lesson{.policy = {plan::Rule::kSync, 3, 0, 0}, .updates = 30};
  const std::vector<double> plain = values_of(lesson, /*overlapped=*/false);
  std::vector<double> last;
  lesson.run([&](Learner& learner, int worker, LocalGroup&) {
    OverlappedWorker own(learner);
    while (learner.wait()) {
      if (!own.forward()) continue;
      const int64_t version = learner.work().version;
      const double factor = factor_of(worker, version);
      if ((version + worker) % 3 == 0)
        step(learner, own.parameters, factor);
      else
        own.backward(factor);
    }
    learner.end_pull();
    learner.pull_at(learner.end().version, own.parameters.data());
    if (worker == 1) last = own.parameters;
  });
  EXPECT_EQ(last, plain);
}

TEST(PsOverlap, PullsAloneOverlapUnderEveryRule) {
  for (const std::string& name : plan::rule_names()) {
    Class lesson{.policy = {plan::parse_rule(name), 3, 2, 1}, .updates = 60};
    lesson.run([&](Learner& learner, int, LocalGroup&) {
      OverlappedWorker own(learner);
      while (learner.wait())
        if (own.forward()) step(learner, own.parameters, 0.5);
      EXPECT_EQ(learner.report(), "counted");
    });
    EXPECT_EQ(lesson.version, 60) << name;
  }
}

TEST(PsOverlap, APushLeavesBehindLocalStepsWithAndWithoutAFetch) {
  for (auto rule : {plan::Rule::kAsync, plan::Rule::kSsp, plan::Rule::kKAsync}) {
    Class lesson{.policy = {rule, 3, 2, 2}, .updates = 60};
    lesson.run([&](Learner& learner, int, LocalGroup&) {
      OverlappedWorker own(learner);
      std::vector<double> fetched(own.parameters.size());
      for (int64_t pushes = 1; learner.wait(); ++pushes) {
        if (pushes == 1) learner.pull(own.parameters.data());
        learner.end_pull();  // of the push before
        EXPECT_TRUE(learner.has_arrived());
        if (pushes % 2 == 1 && pushes > 1) own.parameters = fetched;
        for (size_t i = 0; i < learner.ranges(); ++i) own.fill(i, 0.2);
        void* into = pushes % 2 == 0 ? fetched.data() : nullptr;
        learner.begin_push({own.gradient.data(), own.parameters[0], 0.1}, into);
        for (size_t i = 0; i < learner.ranges(); ++i) EXPECT_TRUE(learner.push_range(i));
        learner.end_push();
      }
      learner.end_pull();
      learner.pull_at(learner.end().version, own.parameters.data());
      EXPECT_THAT(own.parameters, Each(::testing::AllOf(::testing::Gt(0), ::testing::Lt(1))));
      EXPECT_EQ(learner.report(), "counted");
    });
    EXPECT_EQ(lesson.version, 60);
  }
}

TEST(PsOverlap, ALostWorkerIsWrittenOffInTheMiddleOfItsGradient) {
  Class lesson{.policy = {plan::Rule::kSync, 3, 0, 0}, .updates = 20};
  lesson.run([&](Learner& learner, int worker, LocalGroup& group) {
    OverlappedWorker own(learner);
    while (learner.wait()) {
      if (!own.forward()) continue;
      if (worker == 2 && learner.work().version == 5) {
        learner.begin_push({own.gradient.data(), 0, 0.1}, own.parameters.data());
        own.fill(learner.ranges() - 1, 0.5);
        EXPECT_TRUE(learner.push_range(learner.ranges() - 1));
        learner.abandon();
        group.close(worker);
        return;
      }
      own.backward(0.5);
    }
    learner.end_pull();
    EXPECT_EQ(learner.report(), "counted");
  });
  EXPECT_EQ(lesson.version, 20);
  EXPECT_THAT(lesson.news, ::testing::Contains(HasSubstr("worker 2 is lost")));
}

TEST(PsOverlap, ALostServerIsReplacedInTheMiddleOfAGradient) {
  Class lesson{.policy = {plan::Rule::kSync, 2, 0, 0}, .servers = 3, .updates = 20, .replicas = 1};
  const std::vector<double> plain = values_of(lesson, /*overlapped=*/true);
  std::vector<double> last;
  lesson.run([&](Learner& learner, int worker, LocalGroup& group) {
    OverlappedWorker own(learner);
    while (learner.wait()) {
      if (!own.forward()) continue;
      const int64_t version = learner.work().version;
      own.backward(factor_of(worker, version), [&](size_t range) {
        if (worker == 0 && version == 7 && range == learner.ranges() / 2) lesson.close_server(group, 1);
      });
    }
    learner.end_pull();
    learner.pull_at(learner.end().version, own.parameters.data());
    if (worker == 0) last = own.parameters;
  });
  EXPECT_EQ(last, plain);
}

TEST(PsOverlap, ALostServerWithoutACopyEndsTheStepWithItsName) {
  Class lesson{.policy = {plan::Rule::kSync, 1, 0, 0}, .servers = 2, .updates = 20};
  std::string error;
  lesson.run([&](Learner& learner, int, LocalGroup& group) {
    OverlappedWorker own(learner);
    try {
      while (learner.wait())
        if (own.forward()) {
          if (learner.work().version == 3) lesson.close_server(group, 1);
          own.backward(0.5);
        }
    } catch (const CommError& problem) {
      error = problem.what();
    }
    learner.abandon();
    lesson.close_server(group, 0);
  });
  EXPECT_THAT(error, HasSubstr("parameter server 1"));
}

TEST(PsOverlap, ARangeThatIsNotFiniteIsNotSent) {
  Class lesson{.policy = {plan::Rule::kSync, 1, 0, 0}, .updates = 2};
  lesson.run([&](Learner& learner, int, LocalGroup&) {
    OverlappedWorker own(learner);
    while (learner.wait()) {
      if (!own.forward()) continue;
      own.learner.begin_push({own.gradient.data(), 0, 0.1}, own.parameters.data());
      for (size_t i = 0; i < learner.ranges(); ++i) {
        own.fill(i, 0.5);
        double& first = own.gradient[static_cast<size_t>(learner.range(i).begin)];
        const double good = std::exchange(first, std::nan(""));
        EXPECT_FALSE(learner.push_range(i));
        first = good;
        EXPECT_TRUE(learner.push_range(i));
      }
      EXPECT_TRUE(learner.end_push());
    }
    learner.end_pull();
  });
}

TEST(PsOverlap, ARangeReturnsBeforeTheWholeGradientIsComplete) {
  constexpr size_t kRanges = 8;
  std::vector<int64_t> pushed, pulled;
  ScriptedMessenger messenger(0, 2);
  messenger.answer_to = [&](int, const comm::Message& request, std::span<std::byte> into) {
    if (request.kind == kOpen) return message_with(kOpen, OpenReply{kRanges, 0});
    if (request.kind == kFinished)
      return message_with(kFinished,
                          GrantReply{.verdict = static_cast<int64_t>(plan::Verdict::kAccepted), .update = 1});
    if (request.kind == kPush) pushed.push_back(request.get_head<PushHead>().range);
    if (request.kind != kPull) return comm::Message();
    EXPECT_EQ(request.get_head<PullHead>().version, 1);
    pulled.push_back(request.get_head<PullHead>().range);
    return message_with(kPull, PullReply{.version = 1}, into);
  };
  LearnerOptions options;
  options.tensors = std::vector<int64_t>(kRanges, 8);
  options.range_bytes = 32;
  Learner learner(messenger, options);
  ASSERT_EQ(learner.ranges(), kRanges);
  ASSERT_EQ(messenger.deliver(1, message_with(kRelease, ReleaseHead{})), "");
  ASSERT_TRUE(learner.wait());
  std::vector<float> values(8 * kRanges);
  learner.begin_push({values.data(), 0, 0.1}, values.data());
  EXPECT_TRUE(learner.is_pushing());
  for (size_t i : {7U, 6U}) learner.push_range(i);
  EXPECT_THAT(pushed, ElementsAre(7, 6));
  EXPECT_THAT(pulled, ElementsAre());  // there is no next version yet
  ASSERT_EQ(messenger.deliver(1, message_with(kRelease, ReleaseHead{.version = 1, .minibatch = 1})), "");
  EXPECT_THAT(pulled, ElementsAre(6, 7));  // earlier layers first
  learner.push_range(5);
  EXPECT_THAT(pulled, ElementsAre(6, 7, 5));
  for (size_t i = 0; i < 5; ++i) learner.push_range(i);
  EXPECT_TRUE(learner.end_push());
  EXPECT_FALSE(learner.is_pushing());
  ASSERT_TRUE(learner.wait());
  learner.begin_pull(values.data());
  learner.await_range(0);
  EXPECT_TRUE(learner.end_pull());
  EXPECT_EQ(pulled.size(), kRanges);
  learner.abandon();
}

TEST(PsOverlap, AGradientThatDoesNotCountIsNotSent) {
  size_t pushes = 0;
  ScriptedMessenger messenger(0, 2);
  messenger.answer_to = [&](int, const comm::Message& request, std::span<std::byte>) {
    if (request.kind == kOpen) return message_with(kOpen, OpenReply{1, 0});
    if (request.kind == kFinished)
      return message_with(kFinished, GrantReply{.verdict = static_cast<int64_t>(plan::Verdict::kCancelled)});
    if (request.kind == kPush) ++pushes;
    return comm::Message();
  };
  LearnerOptions options;
  options.tensors = {8};
  Learner learner(messenger, options);
  ASSERT_EQ(messenger.deliver(1, message_with(kRelease, ReleaseHead{})), "");
  ASSERT_TRUE(learner.wait());
  std::vector<float> values(8);
  learner.begin_push({values.data(), 0, 0.1}, values.data());
  learner.push_range(0);
  EXPECT_FALSE(learner.end_push());
  EXPECT_EQ(pushes, 0U);
  learner.abandon();
}

TEST(PsFlight, TheLowestIndexGoesFirstAndTheWindowHolds) {
  std::vector<comm::Messenger::Done> waiting;
  std::vector<size_t> sent;
  struct Slow final : comm::Messenger {
    explicit Slow(std::vector<Done>& given) : waiting(given) {}
    std::vector<Done>& waiting;
    std::string name = "slow";
    int rank() const override { return 0; }
    int size() const override { return 2; }
    const std::string& backend() const override { return name; }
    bool is_lost(int) const override { return false; }
    void serve(Place, Handler) override {}
    void on_peer_lost(PeerLost) override {}
    void on_peer_back(PeerBack) override {}
    std::future<comm::Message> ask(int, const comm::Message&, std::span<std::byte>, Deadline) override {
      return {};
    }
    void ask_then(int, const comm::Message&, std::span<std::byte>, Deadline, Done done) override {
      waiting.push_back(std::move(done));
    }
    void tell(int, const comm::Message&, Deadline) override {}
    void run_soon(std::function<void()> task) override { task(); }
    void run_later(double, std::function<void()> task) override { task(); }
  } slow(waiting);
  FlightPlan plan;
  plan.requests = 8;
  plan.window = 2;
  plan.make = [&](size_t index) {
    sent.push_back(index);
    return FlightPlan::Request{1, {}, {}};
  };
  {
    Flight flight(slow, plan);
    for (size_t i : {7U, 6U, 5U, 2U, 4U}) flight.offer(i);
    flight.offer(7);  // again
    EXPECT_THAT(sent, ElementsAre(7, 6));
    auto answer_oldest = [&] {
      auto done = waiting.front();
      waiting.erase(waiting.begin());
      done({}, "");
    };
    answer_oldest();
    EXPECT_THAT(sent, ElementsAre(7, 6, 2));
    flight.wait(7);
    while (!waiting.empty()) answer_oldest();
    EXPECT_THAT(sent, ElementsAre(7, 6, 2, 4, 5));
    for (size_t i : {0U, 1U, 3U}) flight.offer(i);
    while (!waiting.empty()) answer_oldest();
    flight.wait_all();
  }
}

TEST(PsFlight, AfterAnErrorNothingMoreIsSent) {
  ScriptedMessenger messenger(0, 2);
  size_t made = 0;
  FlightPlan plan;
  plan.requests = 4;
  plan.make = [&](size_t index) -> FlightPlan::Request {
    ++made;
    if (index == 1) throw CommError("nobody is left");
    return {1, {}, {}};
  };
  Flight flight(messenger, plan);
  for (size_t i = 0; i < 4; ++i) flight.offer(i);
  EXPECT_EQ(made, 2U);
  EXPECT_THROW(flight.wait(3), CommError);
  EXPECT_THROW(flight.wait_all(), CommError);
}

}  // namespace
}  // namespace yoke::ps
