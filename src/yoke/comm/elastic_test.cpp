// Elastic jobs of real processes: ranks sum numbers, some are killed, the others regroup and continue.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "yoke/base/clock.h"
#include "yoke/base/fault.h"
#include "yoke/cluster/coordinator.h"
#include "yoke/comm/connect.h"

namespace yoke::comm {
namespace {

using ::testing::HasSubstr;

constexpr int kSteps = 60;
constexpr size_t kElements = 20'000;

struct Plan {
  int ranks = 3;
  std::string backend = "shm";
  int min = 1;
  std::map<int, std::string> faults;  // by seat; empty: killed from outside, once it has written `bytes`
  size_t bytes = 1;
};

// One step: everybody adds 1, so the sum is the number of members.
void train(cluster::World& world, const std::string& backend, std::ostream& journal) {
  int done = 0;
  std::string why;
  for (bool first = true; done < kSteps; first = false) {
    if (!first) world.regroup(why);
    try {
      std::unique_ptr<Communicator> comm = connect(world, {.backend = backend});
      // All continue with the newest.
      std::vector<double> newest = {static_cast<double>(done)};
      comm->all_reduce(Buffer(newest), ReduceOp::kMax).wait();
      EXPECT_LE(newest[0] - done, 1);
      done = static_cast<int>(newest[0]);
      while (done < kSteps) {
        std::vector<float> ones(kElements, 1);
        comm->all_reduce(Buffer(ones)).wait();
        if (ones.front() != static_cast<float>(world.size()) || ones.back() != ones.front()) ::_exit(9);
        ++done;
        journal << world.epoch() << " " << done << " " << world.size() << "\n" << std::flush;
      }
      comm->barrier().wait();
      return;
    } catch (const Error& error) {
      if (error.code() != ExitCode::kPeerFailed && error.code() != ExitCode::kRendezvous) throw;
      why = error.what();
    }
  }
}

int run_rank(const Plan& plan, int seat, const std::string& name, const std::filesystem::path& folder) {
  cluster::Identity self;
  self.source = "test";
  self.rank = seat;
  self.world_size = self.local_world_size = plan.ranks;
  self.local_rank = seat;
  self.endpoint = "unix:@" + name;
  self.job_id = name;
  cluster::JoinOptions options;
  options.elastic = true;
  options.insecure = true;
  options.join_timeout = 30;
  std::ofstream journal(folder / std::to_string(seat));
  try {
    auto fault = plan.faults.find(seat);
    cluster::World world(self, options);
    if (fault != plan.faults.end() && !fault->second.empty())
      fault::arm(fault::parse(fault->second), {seat, 0});
    train(world, plan.backend, journal);
    return 0;
  } catch (const Error& error) {
    journal << "error " << error.what() << "\n" << std::flush;
    return static_cast<int>(error.code());
  }
}

struct Line {
  int epoch, step, size;
};

struct Result {
  std::vector<int> statuses;
  std::vector<std::vector<Line>> journals;
  std::vector<std::string> errors;
  double seconds = 0;
};

constexpr int kRunning = -1;

// False once all have ended. Who only stopped is killed after the others have ended.
bool wait_for_some(const Plan& plan, const std::vector<pid_t>& pids, Result& result) {
  bool running = false, healthy = false;
  for (size_t seat = 0; seat < pids.size(); ++seat) {
    int& status = result.statuses[seat];
    if (status == kRunning && ::waitpid(pids[seat], &status, WNOHANG) == 0) status = kRunning;
    if (status != kRunning) continue;
    running = true;
    healthy = healthy || !plan.faults.contains(static_cast<int>(seat));
  }
  for (size_t seat = 0; running && !healthy && seat < pids.size(); ++seat)
    if (result.statuses[seat] == kRunning) ::kill(pids[seat], SIGKILL);
  return running;
}

void kill_from_outside(const Plan& plan, const std::vector<pid_t>& pids,
                       const std::filesystem::path& folder) {
  for (const auto& [seat, fault] : plan.faults) {
    std::error_code none;
    if (fault.empty() && std::filesystem::file_size(folder / std::to_string(seat), none) >= plan.bytes &&
        !none)
      ::kill(pids[static_cast<size_t>(seat)], SIGKILL);  // a zombie until it was waited for: never another
  }
}

Result run(const Plan& plan) {
  static int jobs = 0;
  const std::string name = fmt::format("yoke-elastic-test-{}-{}", ::getpid(), jobs++);
  std::filesystem::path folder = std::filesystem::temp_directory_path() / name;
  std::filesystem::create_directories(folder);
  std::vector<pid_t> pids;
  for (int seat = 0; seat < plan.ranks; ++seat) {
    pids.push_back(::fork());  // before this process has threads
    if (pids.back() == 0) ::_exit(run_rank(plan, seat, name, folder));
  }
  Stopwatch watch;
  Result result;
  {
    cluster::CoordinatorOptions options;
    options.address.name = name;
    options.world_size = plan.ranks;
    options.elastic_min = plan.min;
    net::JobTicket ticket;
    ticket.job_id = name;
    ticket.protection = net::Protection::kNone;
    cluster::Coordinator coordinator(options, ticket);
    result.statuses.assign(pids.size(), kRunning);
    Deadline deadline = Deadline::after(40);
    while (wait_for_some(plan, pids, result)) {
      kill_from_outside(plan, pids, folder);
      if (deadline.passed())
        for (pid_t pid : pids) ::kill(pid, SIGKILL);
      ::usleep(2000);
    }
  }
  result.seconds = watch.seconds();
  for (int seat = 0; seat < plan.ranks; ++seat) {
    std::ifstream journal(folder / std::to_string(seat));
    result.journals.emplace_back();
    result.errors.emplace_back();
    for (std::string text; std::getline(journal, text);) {
      Line line{};
      std::istringstream words(text);
      if (words >> line.epoch >> line.step >> line.size)
        result.journals.back().push_back(line);
      else
        result.errors.back() = text;
    }
  }
  std::filesystem::remove_all(folder);
  return result;
}

// Steps of a survivor increase by one, from the first to the last, and all survivors have the same history.
void check_history(const Plan& plan, const Result& result) {
  for (int seat = 0; seat < plan.ranks; ++seat) {
    if (plan.faults.contains(seat)) continue;
    ASSERT_EQ(result.statuses[static_cast<size_t>(seat)], 0) << result.errors[static_cast<size_t>(seat)];
    const auto& lines = result.journals[static_cast<size_t>(seat)];
    ASSERT_FALSE(lines.empty());
    EXPECT_EQ(lines.back().step, kSteps);
    EXPECT_EQ(lines.back().size, plan.ranks - static_cast<int>(plan.faults.size()));
    for (size_t i = 1; i < lines.size(); ++i) {
      // A step that a survivor had finished and this one had not came with the state.
      EXPECT_GE(lines[i].step, lines[i - 1].step + 1);
      EXPECT_LE(lines[i].step, lines[i - 1].step + 1 + (lines[i].epoch - lines[i - 1].epoch));
    }
  }
}

std::string kill_at(int hit) {
  return fmt::format("at=comm.collective.begin,hit={}:kill", hit);
}

class ElasticJob : public ::testing::TestWithParam<const char*> {};

TEST_P(ElasticJob, AnyRankMayDieAndTheOthersContinue) {
  for (int ranks = 2; ranks <= 6; ++ranks) {
    for (int victim = 0; victim<ranks; victim += ranks> 3 ? ranks - 1 : 1) {
      Plan plan{ranks, GetParam(), 1, {{victim, kill_at(2 + 5 * ranks + victim)}}};
      SCOPED_TRACE(fmt::format("{} ranks, {} dies", ranks, victim));
      Result result = run(plan);
      EXPECT_TRUE(WIFSIGNALED(result.statuses[static_cast<size_t>(victim)]));
      check_history(plan, result);
    }
  }
}

TEST_P(ElasticJob, MayDieAtAnyPointOfAStep) {
  int died = 0;
  for (size_t bytes : {1, 20, 40, 60, 80, 100}) {
    Plan plan{3, GetParam(), 1, {{1, ""}}, bytes};
    SCOPED_TRACE(bytes);
    Result result = run(plan);
    const auto& steps = result.journals[1];
    const bool last_step = !steps.empty() && steps.back().step >= kSteps - 1;  // which it may have taken
    if (!WIFSIGNALED(result.statuses[1]) || last_step) continue;               // it was faster
    check_history(plan, result);
    ++died;
  }
  EXPECT_GT(died, 0);
}

TEST(ElasticFrames, MayDieWhileSending) {
  for (int hit : {1, 2, 3, 30, 31, 77}) {
    Plan plan{3, "tcp", 1, {{1, fmt::format("at=frame.send,hit={}:kill", hit)}}};
    SCOPED_TRACE(hit);
    check_history(plan, run(plan));
  }
}

TEST_P(ElasticJob, TwoDieAtOnce) {
  Plan plan{5, GetParam(), 1, {{0, kill_at(12)}, {3, kill_at(12)}}};
  check_history(plan, run(plan));
}

// The first collective of the second epoch is one that only survivors reach.
TEST_P(ElasticJob, OneDiesWhileTheOthersRegroup) {
  Plan plan{4, GetParam(), 1, {{1, kill_at(10)}, {2, kill_at(11)}}};
  check_history(plan, run(plan));
}

TEST_P(ElasticJob, AStalledRankIsEvicted) {
  Plan plan{3, GetParam(), 1, {{1, "at=comm.collective.begin,hit=10:stop"}}};
  check_history(plan, run(plan));
}

TEST_P(ElasticJob, TooFewAreANamedError) {
  Plan plan{3, GetParam(), 3, {{1, kill_at(10)}}};
  Result result = run(plan);
  for (size_t seat : {size_t{0}, size_t{2}}) {
    EXPECT_EQ(WEXITSTATUS(result.statuses[seat]), static_cast<int>(ExitCode::kPeerFailed));
    EXPECT_THAT(result.errors[seat], HasSubstr("2 of at least 3 ranks are left (elastic.min)"));
    EXPECT_THAT(result.errors[seat], HasSubstr("rank 1 on"));
  }
  EXPECT_LT(result.seconds, 20);
}

INSTANTIATE_TEST_SUITE_P(Backends, ElasticJob, ::testing::Values("shm", "tcp"),
                         [](const auto& one) { return std::string(one.param); });

}  // namespace
}  // namespace yoke::comm
