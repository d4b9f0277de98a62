// Workers that are stuck while they are connected: whoever waits for them hears their name.
#include <gmock/gmock.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "yoke/base/error.h"
#include "yoke/ps/test_class.h"

namespace yoke::ps {
namespace {

using ::testing::HasSubstr;

struct Waiting {
  Class lesson;
  std::atomic<bool> over{false};

  // Worker 0 works until it hears of worker 1, which does `stuck` in its fourth minibatch and then nothing.
  std::string news_of(const std::function<void(Learner&, LocalGroup&)>& stuck) {
    std::string news;
    lesson.run([&](Learner& learner, int worker, LocalGroup& group) {
      std::vector<double> parameters(static_cast<size_t>(learner.elements()));
      try {
        for (int i = 0; learner.wait(); ++i) {
          if (!learner.pull(parameters.data())) continue;
          if (worker == 1 && i == 3) {
            stuck(learner, group);
            for (Deadline limit = Deadline::after(60); !over && !limit.passed();)
              std::this_thread::sleep_for(std::chrono::milliseconds(1));
            return;
          }
          step(learner, parameters, 0.5);
        }
      } catch (const LateWorker& late) {
        EXPECT_EQ(late.worker(), 1);
        news = late.what();
        over = true;
      }
    });
    return news;
  }
};

// Long enough that nobody is late because the machine is busy.
constexpr double kPatience = 5;

TEST(PsLate, AWorkerThatComputesForEverIsNamed) {
  for (auto rule : {plan::Rule::kSync, plan::Rule::kBoundedDelay}) {
    Waiting waiting{.lesson = {.policy = {rule, 2, 0, 0}, .updates = 1000, .timeout = kPatience}};
    EXPECT_THAT(waiting.news_of([](Learner&, LocalGroup&) {}),
                HasSubstr("worker 1 (rank 1) has been silent for"));
  }
}

TEST(PsLate, AWorkerThatNeverSendsWhatItPromisedIsNamed) {
  Waiting waiting{.lesson = {.policy = {plan::Rule::kSync, 2, 0, 0}, .updates = 1000, .timeout = kPatience}};
  std::string news = waiting.news_of([&](Learner& learner, LocalGroup& group) {
    comm::Message message;
    message.kind = kFinished;
    message.set_head(
        FinishedHead{.version = learner.work().version, .minibatch = learner.work().minibatch, .lr = 0.1});
    group.messenger(1).ask(2, message, {}, Deadline::after(20)).get();
  });
  EXPECT_THAT(news, HasSubstr("worker 1 (rank 1) has been silent"));
  EXPECT_THAT(news, HasSubstr("announced a gradient"));
}

TEST(PsLate, AWorkerThatSaysItIsAliveIsWaitedFor) {
  Class lesson{.policy = {plan::Rule::kSync, 2, 0, 0}, .updates = 5, .timeout = kPatience};
  lesson.run([&](Learner& learner, int worker, LocalGroup&) {
    std::vector<double> parameters(static_cast<size_t>(learner.elements()));
    for (int i = 0; learner.wait(); ++i) {
      if (!learner.pull(parameters.data())) continue;
      for (Deadline busy = Deadline::after(kPatience + 2); worker == 1 && i == 2 && !busy.passed();) {
        learner.say_alive();
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
      }
      step(learner, parameters, 0.5);
    }
    if (worker == 0) learner.report();
  });
  EXPECT_EQ(lesson.version, 5);
}

TEST(PsLate, AWorkerThatDoesNotEndIsNamed) {
  Waiting waiting{.lesson = {.policy = {plan::Rule::kAsync, 2, 0, 0}, .updates = 30, .timeout = kPatience}};
  waiting.lesson.run([&](Learner& learner, int worker, LocalGroup&) {
    std::vector<double> parameters(static_cast<size_t>(learner.elements()));
    while (learner.wait())
      if (learner.pull(parameters.data())) step(learner, parameters, 0.5);
    for (Deadline limit = Deadline::after(60); worker == 1 && !waiting.over && !limit.passed();)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (worker == 1) return learner.goodbye({.peak_memory = 1234});
    EXPECT_THAT([&] { learner.await_end(); },
                ::testing::ThrowsMessage<LateWorker>(HasSubstr("worker 1 (rank 1) has not exited")));
    waiting.over = true;
    EXPECT_EQ(learner.await_end(), (std::vector<WorkerEnd>{{}, {.peak_memory = 1234}}));
  });
}

TEST(PsLate, AServerThatLosesAllItsWorkersDoesNotEndWell) {
  std::unique_ptr<Server> server;
  LocalGroup group(3);
  ServerOptions options;
  options.workers = 2;
  options.make_updater = make_optimizer({});
  options.scheduler.policy = {plan::Rule::kSync, 2, 0, 0};
  server = std::make_unique<Server>(group.messenger(2), std::move(options));
  group.close(0);
  group.close(1);
  EXPECT_THAT([&] { server->run(); },
              ::testing::ThrowsMessage<CommError>(HasSubstr("all 2 workers were lost")));
}

}  // namespace
}  // namespace yoke::ps
