// Links between servers that break while both servers live.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "yoke/ps/test_class.h"
#include "yoke/ps/test_messenger.h"

namespace yoke::ps {
namespace {

// The parameters at the end. At version 10 the link between two servers is cut; -1: none.
std::vector<double> trained_with_cut(int a, int b) {
  Class lesson{.policy = {plan::Rule::kSync, 3, 2, 1},
               .servers = 3,
               .updates = 40,
               .optimizer = {.momentum = 0.9},
               .clip_norm = 0.5,
               .replicas = 1,
               .cuttable = true};
  lesson.leaves = a < 0 ? -1 : std::max(a, b);  // its messenger ends when it has ended
  std::vector<double> values;
  bool was_cut = a < 0;
  lesson.run([&](Learner& learner, int worker, LocalGroup&) {
    std::vector<double> parameters(static_cast<size_t>(learner.elements()));
    while (learner.wait()) {
      if (worker == 0 && learner.work().version >= 10 && !std::exchange(was_cut, true)) lesson.cut(a, b);
      if (learner.pull(parameters.data())) step(learner, parameters, 0.1 + 0.01 * worker);
    }
    if (worker != 0) return;
    learner.fetch_state({parameters.data()});
    learner.report();
    values = parameters;
  });
  EXPECT_EQ(lesson.version, lesson.updates);
  EXPECT_EQ(lesson.counts.servers_lost, a < 0 ? 0 : 1);
  return values;
}

TEST(PsServerFence, OfTwoServersThatCannotReachEachOtherOneEnds) {
  const std::vector<double> undisturbed = trained_with_cut(-1, -1);
  for (auto [a, b] : {std::pair(0, 1), std::pair(1, 2), std::pair(0, 2)}) {
    SCOPED_TRACE(fmt::format("servers {} and {}", a, b));
    EXPECT_EQ(trained_with_cut(a, b), undisturbed) << "no range was served twice";
  }
}

TEST(PsServerFence, AServerThatIsToWaitAsksAgainAfterAPause) {
  ScriptedMessenger messenger(1, 3);
  ServerOptions options;
  options.servers = 2;
  options.replicas = 1;
  options.make_updater = make_optimizer({});
  options.scheduler.policy = {plan::Rule::kSync, 1, 0, 0};
  Server server(messenger, std::move(options));
  int asked = 0;
  messenger.answer_to = [&](int, const comm::Message& request, std::span<std::byte>) {
    if (request.kind != kAskGone) return comm::Message();
    ++asked;
    return message_with(kAskGone, GoneReply{GoneReply::kWait});
  };
  messenger.lose(2);
  for (int times = 1; times <= 3; ++times) {
    EXPECT_EQ(asked, times);
    ASSERT_EQ(messenger.later.size(), 1U);
    const auto [seconds, task] = std::exchange(messenger.later, {}).front();
    EXPECT_GT(seconds, 0.01);
    task();
  }
}

}  // namespace
}  // namespace yoke::ps
