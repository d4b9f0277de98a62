#include "yoke/comm/shared/shm.h"

#include <dirent.h>

#include <filesystem>

#include "yoke/comm/polling_for_tests.h"
#include "yoke/comm/shared/hand_out.h"
#include "yoke/comm/shared/ranks_for_tests.h"
#include "yoke/comm/shared/shm_space.h"

namespace yoke::comm {
namespace {

using testing::Rank;

void expect_comm_error(const std::function<void()>& action, const std::string& part) {
  try {
    action();
    ADD_FAILURE() << "no error";
  } catch (const CommError& error) {
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
  }
}

TEST(Shm, EverySmallOperationIsDoneByPolling) {
  testing::run_shm(3, [](Rank& rank) { test::poll_every_operation(rank.backend, rank.rank, rank.size); });
}

// One way to disagree: every rank must throw the same text, which shows both sides.
void disagree(Rank& rank, const std::function<Operation(Rank&, bool odd)>& ask, const std::string& one,
              const std::string& other) {
  try {
    bool odd = rank.rank == rank.size - 1;
    rank.run(ask(rank, odd));
    ADD_FAILURE() << "rank " << rank.rank << " noticed nothing";
  } catch (const MismatchError& error) {
    std::string text = error.what();
    EXPECT_NE(text.find("rank 0 called " + one), std::string::npos) << text;
    EXPECT_NE(text.find(other), std::string::npos) << text;
  }
}

void check_mismatches(int size, const std::function<void(int, const testing::Body&)>& start) {
  static std::vector<float> floats(40000);
  static std::vector<int32_t> integers(40000);
  auto of = [](auto& all, int64_t count) {
    return Buffer(all.data(), count, data_type_of<std::decay_t<decltype(all[0])>>());
  };
  for (int64_t count : {8, 40000}) {
    start(size, [&](Rank& rank) {
      disagree(
          rank,
          [&](Rank& r, bool odd) {
            return r.ask().all_reduce(odd ? of(integers, count) : of(floats, count), ReduceOp::kSum);
          },
          "all_reduce #1 sum of fp32", "int32");
    });
    start(size, [&](Rank& rank) {
      disagree(
          rank,
          [&](Rank& r, bool odd) { return r.ask().all_reduce(of(floats, count - odd), ReduceOp::kSum); },
          "all_reduce", std::to_string(count - 1));
    });
    start(size, [&](Rank& rank) {
      disagree(
          rank,
          [&](Rank& r, bool odd) {
            return odd ? r.ask().broadcast(of(floats, count), 0)
                       : r.ask().all_reduce(of(floats, count), ReduceOp::kSum);
          },
          "all_reduce", "broadcast");
    });
    start(size, [&](Rank& rank) {
      disagree(
          rank,
          [&](Rank& r, bool odd) {
            return r.ask().all_reduce(of(floats, count), odd ? ReduceOp::kMax : ReduceOp::kSum);
          },
          "all_reduce #1 sum", "max");
    });
    start(size, [&](Rank& rank) {
      disagree(
          rank,
          [&](Rank& r, bool odd) {
            if (odd) ++r.number;  // it has left one out
            return r.ask().all_reduce(of(floats, count), ReduceOp::kSum);
          },
          "all_reduce #1", "#2");
    });
    start(size, [&](Rank& rank) {
      disagree(
          rank,
          [&](Rank& r, bool odd) {
            Operation operation = r.ask().all_reduce(of(floats, count), ReduceOp::kSum);
            int64_t shape[] = {odd ? 4 : 2, count / (odd ? 4 : 2)};
            operation.descriptor.set_shape(shape);
            return operation;
          },
          "all_reduce", fmt::format("[4, {}]", count / 4));
    });
  }
}

TEST(Mismatch, IsTheSameErrorOnEveryThread) {
  check_mismatches(3, [](int size, const testing::Body& body) { testing::run_local(size, body); });
}

TEST(Mismatch, IsTheSameErrorOnEveryProcess) {
  check_mismatches(2, [](int size, const testing::Body& body) { testing::run_shm(size, body); });
}

void skip_one(Rank& rank) {
  std::vector<float> data(10000, 1);
  if (rank.rank == 1) return;  // never comes
  expect_comm_error([&] { rank.run(rank.ask().all_reduce(data, ReduceOp::kSum), 0.2); }, "rank 1");
  expect_comm_error([&] { rank.run(rank.ask().barrier(), 30); }, "aborted");
}

TEST(MissingRank, IsNamedWhenTheDeadlinePasses) {
  testing::run_local(2, skip_one);
  testing::run_shm(2, skip_one);
}

TEST(LateRank, DoesNotTouchMemoryOfOneThatGaveUp) {
  testing::run_local(2, [](Rank& rank) {
    static std::atomic<bool> gave_up;
    gave_up = false;
    rank.run(rank.ask().barrier());
    auto data = std::make_unique<std::vector<float>>(100000, 1.0f);
    if (rank.rank == 0) {
      expect_comm_error([&] { rank.run(rank.ask().all_reduce(*data, ReduceOp::kSum), 0.05); }, "rank 1");
      data.reset();
      gave_up = true;
    } else {
      while (!gave_up) std::this_thread::yield();
      expect_comm_error([&] { rank.run(rank.ask().all_reduce(*data, ReduceOp::kSum)); }, "rank 0");
    }
  });
}

int64_t own_memory_files() {
  int64_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm"))
    count += entry.path().filename().string().find("yoke") != std::string::npos;
  return count;
}

// Rank 1 dies by its own hand when `when` says so; the others must end with its name.
void kill_during(const std::function<void(Rank&)>& work) {
  testing::run_shm(
      3, [&](Rank& rank) { expect_comm_error([&] { work(rank); }, "rank 1"); }, 1);
}

TEST(KilledRank, EndsTheOthersInEveryPhase) {
  kill_during([](Rank& rank) {  // before it comes to a small one, and to a large one
    if (rank.rank == 1) ::kill(::getpid(), SIGKILL);
    std::vector<float> data(10, 1);
    rank.run(rank.ask().all_reduce(data, ReduceOp::kSum));
  });
  kill_during([](Rank& rank) {
    std::vector<float> data(100000, 1);
    rank.run(rank.ask().all_reduce(data, ReduceOp::kSum));
    if (rank.rank == 1) ::kill(::getpid(), SIGKILL);
    for (;;) rank.run(rank.ask().all_reduce(data, ReduceOp::kSum));
  });
  kill_during([](Rank& rank) {  // somewhere inside
    Memory memory = rank.backend.allocate(4 << 20);
    std::jthread assassin([&] {
      if (rank.rank != 1) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(30));
      ::kill(::getpid(), SIGKILL);
    });
    assassin.detach();
    for (;;)
      rank.run(rank.ask().all_reduce(Buffer(memory.data.get(), 1 << 20, DataType::kFloat32), ReduceOp::kSum));
  });
  kill_during([](Rank& rank) {  // while others form a group with it
    if (rank.rank == 1) ::kill(::getpid(), SIGKILL);
    std::vector<int> members = {1, 0, 2};
    rank.backend.split(members, 7, Deadline::after(30));
  });
  kill_during([](Rank& rank) {  // while others wait for its message
    if (rank.rank == 1) ::kill(::getpid(), SIGKILL);
    std::vector<float> data(100);
    Transfer receive = rank.ask().transfer(false, data, 1, 0);
    std::vector<Transfer*> one = {&receive};
    while (!rank.backend.advance(receive)) rank.backend.wait_for(one, Deadline::after(30));
  });
  EXPECT_EQ(own_memory_files(), 0);
}

TEST(KilledRank, EndsTheSetUpOfTheOthers) {
  testing::Board* board = testing::Board::make();
  auto failure = std::make_shared<cluster::Failure>();
  std::jthread news([&] {
    board->get(Deadline::after(30));
    failure->raise({.rank = 1, .what = "rank 1 was killed"});
  });
  expect_comm_error([&] { make_shm_backend(testing::setup_for(*board, 0, 2, failure)); },
                    "rank 1 was killed");
  news.join();
}

TEST(ShmSetup, TellsHowManyCameWhenTheDeadlinePasses) {
  testing::Board* board = testing::Board::make();
  ShmSetup setup = testing::setup_for(*board, 0, 3, std::make_shared<cluster::Failure>());
  setup.timeout = 0.1;
  expect_comm_error([&] { make_shm_backend(setup); }, "1 of 3 ranks");
}

TEST(FileServer, TurnsStrangersAway) {
  cluster::Failure failure;
  shared::FileServer server;
  std::vector<shared::File> files;
  files.emplace_back(::dup(0));
  std::string ticket = server.ticket(), wrong = ticket;
  wrong.back() = wrong.back() == 'a' ? 'b' : 'a';
  std::jthread serving([&] { server.serve(files, 2, failure, Deadline::after(30)); });
  auto fetch = [&](const std::string& with, int rank) {
    return shared::receive_files(with, rank, 1, failure, Deadline::after(10));
  };
  EXPECT_THROW(fetch(wrong, 1), CommError);
  EXPECT_THROW(fetch(ticket, 2), CommError);  // no such rank
  EXPECT_THROW(fetch(ticket, 0), CommError);
  EXPECT_THROW(fetch("nothing", 1), CommError);
  EXPECT_EQ(fetch(ticket, 1).size(), 1u);
  serving.join();
}

TEST(ShmSpace, ReusesWhatIsFreedAndSaysWhenItIsFull) {
  int file = ::memfd_create("yoke-test", MFD_CLOEXEC);
  ASSERT_EQ(::ftruncate(file, 8 << 20), 0);
  std::vector<int> files = {file};
  auto space = std::make_shared<shared::ShmSpace>(files, size_t{8} << 20, 0);
  ::close(file);
  for (int i = 0; i < 10; ++i) {
    Memory a = space->allocate(3 << 20), b = space->allocate(100), c = space->allocate(3 << 20);
    std::memset(a.data.get(), 1, a.bytes);
    std::memset(c.data.get(), 2, c.bytes);
    EXPECT_EQ(static_cast<char*>(b.data.get())[99], 0) << "fresh memory is zero";
    std::memset(b.data.get(), 3, b.bytes);
    EXPECT_THROW(space->allocate(3 << 20), CommError);
  }
  std::vector<char> outside(10);
  EXPECT_FALSE(space->locate(outside.data(), 10).reachable());
  EXPECT_THROW(space->resolve({0, 0, size_t{8} << 20}, 1), CommError);
  EXPECT_THROW(space->resolve({1, 0, 0}, 1), CommError);
  Memory kept = space->allocate(10);
  space.reset();
  std::memset(kept.data.get(), 1, 10);  // memory keeps its space alive
}

}  // namespace
}  // namespace yoke::comm
