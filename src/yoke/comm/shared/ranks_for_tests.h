// Runs a test body on several ranks: threads over the local backend, forked processes over shm.
#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <functional>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "yoke/comm/backend.h"
#include "yoke/comm/queue/request.h"
#include "yoke/comm/shared/futex.h"
#include "yoke/comm/shared/local.h"
#include "yoke/comm/shared/shm.h"

namespace yoke::comm::testing {

struct Rank {
  Backend& backend;
  int rank;
  int size;
  cluster::Failure& failure;
  uint64_t number = 0;

  RequestChecker ask() const { return {rank, size}; }
  void run(Operation operation, double seconds = 30, const char* name = "") {
    operation.descriptor.number = ++number;
    operation.descriptor.set_name(name);
    operation.fingerprint = operation.descriptor.fingerprint();
    backend.run(operation, Deadline::after(seconds));
  }
};
using Body = std::function<void(Rank&)>;

// Exceptions that leave the body are failures of the test.
inline void run_body(const Body& body, Rank& rank) {
  try {
    body(rank);
  } catch (const std::exception& error) {
    ADD_FAILURE() << "rank " << rank.rank << " of " << rank.size << ": " << error.what();
  }
}

inline void run_local(int size, const Body& body) {
  auto failure = std::make_shared<cluster::Failure>();
  auto backends = make_local_backends(size, failure);
  std::vector<std::jthread> threads;
  for (int r = 0; r < size; ++r) {
    threads.emplace_back([&, r] {
      Rank rank{*backends[static_cast<size_t>(r)], r, size, *failure};
      run_body(body, rank);
      backends[static_cast<size_t>(r)].reset();  // ranks leave in any order
    });
  }
  for (std::jthread& thread : threads) thread.join();
}

// What forked ranks share before they share anything: one value, and the news of a death.
struct Board {
  shared::Word is_put;
  char value[512];
  shared::Word news;  // 1 + the rank that died

  static Board* make() {
    void* page = ::mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return new (page) Board();
  }
  void put(const std::string& text) {
    std::strncpy(value, text.c_str(), sizeof(value) - 1);
    is_put.store(1);
    shared::wake_all(is_put);
  }
  std::string get(Deadline deadline) {
    while (is_put.load() == 0) {
      if (deadline.passed()) throw CommError("nobody put the value");
      shared::sleep_on(is_put, 0, 0.02);
    }
    return value;
  }
};

inline ShmSetup setup_for(Board& board, int rank, int size, std::shared_ptr<cluster::Failure> failure) {
  ShmSetup setup;
  setup.rank = rank;
  setup.size = size;
  setup.put = [&](const std::string&, const std::string& value, Deadline) { board.put(value); };
  setup.get = [&](const std::string&, Deadline deadline) { return board.get(deadline); };
  setup.failure = std::move(failure);
  setup.timeout = 30;
  setup.heap_bytes = size_t{1} << 30;  // sanitizers leave little address space
  return setup;
}

// The life of one forked rank; does not return. Raises the failure when the parent tells of a death.
[[noreturn]] inline void live(Board& board, int r, int size, const Body& body) {
  auto failure = std::make_shared<cluster::Failure>();
  std::thread([&board, failure] {
    while (board.news.load() == 0) shared::sleep_on(board.news, 0, 1);
    int culprit = static_cast<int>(board.news.load()) - 1;
    failure->raise({.rank = culprit, .kind = "killed", .what = fmt::format("rank {} was killed", culprit)});
  }).detach();
  try {
    auto backend = make_shm_backend(setup_for(board, r, size, failure));
    Rank rank{*backend, r, size, *failure};
    run_body(body, rank);
  } catch (const std::exception& error) {
    // Not every death comes after the set-up.
    if (board.news.load() == 0) ADD_FAILURE() << "rank " << r << ": " << error.what();
  }
  std::fflush(nullptr);
  ::_exit(::testing::Test::HasFailure() ? 1 : 0);
}

// Forks, waits (bounded), and expects that every rank ends well but for those that kill themselves.
inline void run_shm(int size, const Body& body, int killed = -1) {
  Board* board = Board::make();
  std::vector<pid_t> children;
  for (int r = 0; r < size; ++r) {
    pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) live(*board, r, size, body);
    children.push_back(child);
  }
  Deadline deadline = Deadline::after(60);
  for (int left = size; left > 0;) {
    int status = 0;
    pid_t ended = ::waitpid(-1, &status, WNOHANG);
    if (ended <= 0) {
      if (deadline.passed()) {
        for (pid_t child : children) ::kill(child, SIGKILL);
        ADD_FAILURE() << left << " of " << size << " ranks still ran after a minute";
        deadline = Deadline::after(10);
      }
      shared::sleep_on(board->is_put, board->is_put.load(), 0.001);
      continue;
    }
    int r = static_cast<int>(std::find(children.begin(), children.end(), ended) - children.begin());
    --left;
    if (r == killed) {
      EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << "rank " << r;
      board->news.store(static_cast<uint32_t>(r) + 1);
      shared::wake_all(board->news);
    } else {
      EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "rank " << r << " status " << status;
    }
  }
  ::munmap(board, sizeof(Board));
}

}  // namespace yoke::comm::testing
