// The gradient of an update is clipped by its norm over all servers, as one device clips it.
#include "yoke/ps/clip.h"

#include <gmock/gmock.h>

#include <cmath>
#include <limits>
#include <mutex>

#include "yoke/base/error.h"
#include "yoke/kernels/clip_factor.h"
#include "yoke/ps/test_class.h"
#include "yoke/ps/test_messenger.h"

namespace yoke::ps {
namespace {

using kernels::clip_factor;

using ::testing::DoubleNear;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

TEST(PsClip, TheFactorIsThatOfOneDevice) {
  EXPECT_EQ(clip_factor(0, 1), 1);
  EXPECT_EQ(clip_factor(0.5, 1), 1);
  EXPECT_DOUBLE_EQ(clip_factor(4, 1), 1 / (4 + 1e-6));
  EXPECT_EQ(clip_factor(kInfinity, 1), 0);
  EXPECT_EQ(clip_factor(std::nan(""), 1), 0);
}

TEST(PsClip, TheLastServerBringsTheFactor) {
  Clipping clipping(3);
  clipping.await(4, 1);
  clipping.await(6, 2);
  EXPECT_FALSE(clipping.add(2, {4, 9}));
  EXPECT_FALSE(clipping.add(0, {6, 0}));
  EXPECT_FALSE(clipping.add(0, {4, 0}));
  std::optional<ClipHead> clip = clipping.add(1, {4, 16});
  ASSERT_TRUE(clip);
  EXPECT_EQ(clip->number, 4);
  EXPECT_DOUBLE_EQ(clip->factor, 1 / (5 + 1e-6));
  EXPECT_THROW(clipping.add(1, {4, 16}), CommError) << "it is over";
  EXPECT_THROW(clipping.add(0, {6, 0}), CommError) << "twice";
  EXPECT_THROW(clipping.add(1, {5, 0}), CommError) << "an update that is not clipped";
  EXPECT_THROW(clipping.add(3, {6, 0}), CommError) << "a fourth server";
  EXPECT_THROW(clipping.add(-1, {6, 0}), CommError);
  EXPECT_THROW(clipping.add(1, {6, -1}), CommError);
  EXPECT_FALSE(clipping.add(1, {6, std::nan("")}));
  EXPECT_EQ(clipping.add(2, {6, 1})->factor, 0);
}

// What the servers hold after `updates`, and the norms that worker 0 was told.
struct Clipped {
  Class lesson;
  double clip_norm = 1;
  double factor_of_first = 1;  // the others' are larger by 1 each
  std::vector<double> values{}, norms{};

  void run() {
    lesson.clip_norm = clip_norm;
    lesson.run([&](Learner& learner, int worker, LocalGroup&) {
      std::vector<double> parameters(static_cast<size_t>(learner.elements()));
      while (learner.wait()) {
        if (!learner.pull(parameters.data())) continue;
        note(learner, worker);
        std::vector<double> gradient(parameters);
        for (double& one : gradient) one *= factor_of_first + worker;
        learner.push({.data = gradient.data(), .loss = 1, .lr = 0.1, .measure = true});
      }
      learner.pull_at(learner.end().version, parameters.data());
      note(learner, worker);
      if (worker == 0) learner.fetch_state({parameters.data()});
      if (worker == 0) values = parameters;
    });
  }
  void note(const Learner& learner, int worker) {
    if (worker == 0 && learner.update_norm()) norms.push_back(learner.update_norm()->norm);
  }
};

TEST(PsClip, UpdatesOfOneVersionAreClippedOnAnyNumberOfServers) {
  struct Case {
    plan::PolicyOptions policy;
    int64_t updates;
  };
  // 25 ranges or so; with 40 servers some hold none.
  for (int servers : {1, 2, 3, 40}) {
    for (const Case& one : {Case{{plan::Rule::kSync, 3, 0, 0}, 8}, Case{{plan::Rule::kKSync, 3, 3, 0}, 8},
                            Case{{plan::Rule::kBoundedDelay, 3, 0, 0}, 24}}) {
      SCOPED_TRACE(fmt::format("{} on {} servers", plan::to_string(one.policy.rule), servers));
      Clipped run{.lesson = {.policy = one.policy,
                             .servers = servers,
                             .updates = one.updates,
                             .tensors = {100, 3, 5000},
                             .range_bytes = 2048}};
      run.clip_norm = 100;  // the norm is 143 at first, and 88 at the end
      run.run();
      double w = 1;
      std::vector<double> norms;
      for (int i = 0; i < 8; ++i) {
        norms.push_back(2 * w * std::sqrt(5103.0));
        w -= 0.1 * 2 * w * std::min(1.0, run.clip_norm / (norms.back() + 1e-6));
      }
      EXPECT_THAT(run.values, Each(DoubleNear(w, 1e-12)));
      ASSERT_EQ(run.norms.size(), norms.size());
      for (size_t i = 0; i < norms.size(); ++i) EXPECT_NEAR(run.norms[i], norms[i], 1e-9);
    }
  }
}

TEST(PsClip, WithoutClippingTheNormIsToldToWhoAsks) {
  Clipped run{.lesson = {.policy = {plan::Rule::kSync, 2, 0, 0}, .updates = 5}, .clip_norm = 0};
  run.run();
  ASSERT_EQ(run.norms.size(), 5u);
  for (size_t i = 0; i < run.norms.size(); ++i)
    EXPECT_NEAR(run.norms[i], 1.5 * std::pow(0.85, static_cast<double>(i)) * std::sqrt(5103.0), 1e-9);
}

TEST(PsClip, OtherRulesHaveNoGradientOfAnUpdate) {
  for (auto rule : {plan::Rule::kAsync, plan::Rule::kKAsync, plan::Rule::kSsp}) {
    Clipped run{.lesson = {.policy = {rule, 2, 1, 1}, .updates = 20}, .factor_of_first = 0.1};
    run.run();
    EXPECT_TRUE(run.norms.empty());
  }
  // There a worker's own factor counts.
  // One server: another one may answer pull_newest() before it has heard of the update.
  Class lesson{.policy = {plan::Rule::kAsync, 1, 0, 0}, .servers = 1, .updates = 1};
  std::vector<double> parameters(5103);
  lesson.run([&](Learner& learner, int, LocalGroup&) {
    while (learner.wait()) {
      std::vector<double> ones(parameters.size(), 1);
      if (learner.pull(parameters.data())) learner.push({.data = ones.data(), .lr = 1, .clip = 0.25});
    }
    learner.pull_newest(parameters.data());
  });
  EXPECT_THAT(parameters, Each(0.75));
}

TEST(PsClip, ANormThatIsNotFiniteMovesNothing) {
  for (int servers : {1, 2}) {
    Class lesson{.policy = {plan::Rule::kSync, 2, 0, 0}, .servers = servers, .updates = 3};
    lesson.clip_norm = 1;
    lesson.run([&](Learner& learner, int, LocalGroup&) {
      std::vector<double> parameters(5103), gradient(5103, 0);
      while (learner.wait()) {
        ASSERT_TRUE(learner.pull(parameters.data()));
        bool after_the_second = learner.work().version == 2;
        EXPECT_THAT(parameters, Each(DoubleNear(learner.work().version > 0 ? 0.99 : 1, 0.01)));
        if (after_the_second) {
          EXPECT_FALSE(std::isfinite(learner.update_norm()->norm));
          EXPECT_GT(learner.update_norm()->first_bad, 0);
        }
        std::fill(gradient.begin(), gradient.end(), 1e-3);
        if (learner.work().version == 1) gradient.back() = 1e200;  // its square cannot be told
        learner.push({.data = gradient.data(), .lr = 0.1});
      }
    });
    EXPECT_EQ(lesson.version, 0) << "nobody asked for a report";
  }
}

// The second of two servers, with three ranges of its own.
struct ClippingServer {
  explicit ClippingServer(plan::Rule rule = plan::Rule::kSync)
      : messenger(3, 4), server(messenger, [&] {
          ServerOptions options;
          options.workers = 2;
          options.servers = 2;
          options.make_updater = make_optimizer({});
          options.scheduler.policy = {rule, 2, 0, 0};
          return options;
        }()) {
    const std::vector<int64_t> tensors = {96};
    std::string refusal =
        send(kOpen, OpenHead{96, 64, 1, DataType::kFloat32}, std::as_bytes(std::span(tensors)), 0);
    EXPECT_EQ(refusal, "");
  }
  template <class Head>
  std::string send(uint16_t kind, const Head& head, std::span<const std::byte> payload, int from) {
    return messenger.deliver(from, message_with(kind, head, payload));
  }
  std::string push(int worker, int64_t range, int64_t update = 1) {
    std::vector<float> ones(16, 1);
    return send(kPush, PushHead{range, range * 16, 16, update, update, 1, 0}, std::as_bytes(std::span(ones)),
                worker);
  }
  std::string update(int64_t number) {
    std::vector<Contributor> from = {{0, number, 0}, {1, number, 0}};
    return send(kUpdate, UpdateHead{number, number, 0.5, 0.1, 1}, std::as_bytes(std::span(from)), 2);
  }
  std::string clip(int64_t number, double factor, int from = 2) {
    return send(kClip, ClipHead{number, factor}, {}, from);
  }
  int answers_to_pull(int64_t version) {
    int before = messenger.answers;
    EXPECT_EQ(send(kPull, PullHead{1, 16, 16, version}, {}, 0), "");
    return messenger.answers - before;
  }

  ScriptedMessenger messenger;
  Server server;
};

TEST(PsClip, AServerTellsItsSumOnceAndWaitsForTheFactor) {
  ClippingServer shop;
  EXPECT_EQ(shop.update(1), "");
  for (int64_t range : {1, 3, 5}) EXPECT_EQ(shop.push(0, range), "");
  for (int64_t range : {1, 3}) EXPECT_EQ(shop.push(1, range), "");
  EXPECT_THAT(shop.messenger.told, ::testing::IsEmpty());
  EXPECT_THAT(shop.clip(1, 0.5), HasSubstr("unexpected `clip` message"));
  EXPECT_EQ(shop.push(1, 5), "");
  EXPECT_THAT(shop.messenger.told, ElementsAre(kSquare));
  EXPECT_EQ(shop.answers_to_pull(1), 0);
  EXPECT_THAT(shop.clip(2, 0.5), HasSubstr("update 2"));
  EXPECT_THAT(shop.clip(1, 1.5), HasSubstr("by 1.5"));
  EXPECT_THAT(shop.clip(1, std::nan("")), HasSubstr("by nan"));
  EXPECT_THAT(shop.clip(1, 0.5, 0), HasSubstr("rank 0 is not the scheduler"));
  EXPECT_THAT(shop.send(kSquare, SquareHead{1, 1}, {}, 2),
              HasSubstr("unexpected `square` message from rank 2"));
  int before = shop.messenger.answers;
  EXPECT_EQ(shop.clip(1, 0.5), "");
  EXPECT_EQ(shop.messenger.answers, before + 1) << "the pull that waited";
  EXPECT_THAT(shop.clip(1, 0.5), HasSubstr("unexpected `clip` message"));
  EXPECT_EQ(shop.answers_to_pull(1), 1);
}

TEST(PsClip, WhatALostWorkerDidNotSendHoldsNoUpdateUp) {
  ClippingServer shop;
  EXPECT_EQ(shop.update(1), "");
  for (int64_t range : {1, 3, 5}) EXPECT_EQ(shop.push(0, range), "");
  EXPECT_EQ(shop.push(1, 1), "");
  shop.messenger.lose(1);
  EXPECT_THAT(shop.messenger.told, ElementsAre(kSquare));
  EXPECT_EQ(shop.clip(1, 1), "");
  EXPECT_EQ(shop.answers_to_pull(1), 1);
}

TEST(PsClip, ASnapshotOfAVersionThatWaitsToBeClippedIsTakenThen) {
  ClippingServer shop;
  EXPECT_EQ(shop.update(1), "");
  EXPECT_EQ(shop.send(kSnapshot, VersionReply{1}, {}, 2), "");
  for (int64_t range : {1, 3, 5}) EXPECT_EQ(shop.push(0, range) + shop.push(1, range), "");
  int before = shop.messenger.answers;
  EXPECT_EQ(shop.send(kFetch, FetchHead{1, 0, 1}, {}, 0), "");
  EXPECT_EQ(shop.messenger.answers, before);
  EXPECT_EQ(shop.clip(1, 1), "");
  EXPECT_EQ(shop.messenger.answers, before + 1);
}

TEST(PsClip, WhoPushesIntoAnUpdateThatIsCompleteIsRefusedOrWaits) {
  ClippingServer strict;
  EXPECT_EQ(strict.update(1), "");
  EXPECT_EQ(strict.push(0, 1) + strict.push(1, 1), "");
  EXPECT_THAT(strict.push(0, 1, 2), HasSubstr("which has 0; nothing was applied"));
  // Rounds of bounded_delay may end with the dial: what comes then belongs to the next update.
  ClippingServer shop(plan::Rule::kBoundedDelay);
  EXPECT_EQ(shop.update(1), "");
  for (int64_t range : {1, 3, 5}) EXPECT_EQ(shop.push(0, range) + shop.push(1, range), "");
  for (int64_t range : {1, 3, 5}) EXPECT_EQ(shop.push(0, range, 2), "");
  EXPECT_EQ(shop.update(2), "");
  EXPECT_EQ(shop.clip(1, 1), "");
  EXPECT_EQ(shop.answers_to_pull(1), 1);
  for (int64_t range : {1, 3, 5}) EXPECT_EQ(shop.push(1, range, 2), "");
  EXPECT_THAT(shop.messenger.told, ElementsAre(kSquare, kSquare));
  EXPECT_EQ(shop.clip(2, 1), "");
  EXPECT_EQ(shop.answers_to_pull(2), 1);
}

}  // namespace
}  // namespace yoke::ps
