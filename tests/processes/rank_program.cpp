// A program of a user's, as small as it can be, that misbehaves on request: what the process tests start on
// every rank.
//
//   rank_program BACKEND STEPS BYTES [FAULT RANK STEP]
// FAULT: none kill stop exit vanish throw type shape order op skip slow nap, leave (in good order), receive
// (likewise, while its left neighbour waits to receive from it), unwind (throws with operations in flight),
// abandon
#include <fmt/core.h>
#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "yoke/base/error.h"
#include "yoke/comm/join.h"

namespace {

using namespace yoke;

struct Script {
  std::string backend = "auto";
  int steps = 10;
  int64_t count = 1000;
  std::string fault = "none";
  int rank = -1;
  int step = -1;
  double timeout = 20;
};

// Operations that no other rank takes part in; their memory outlives the communicator.
std::vector<comm::Pending> begin_in_vain(comm::Communicator& comm) {
  static std::vector<float> in(100000), more(100000), out(1000000);
  const int peer = (comm.rank() + 1) % comm.size();
  std::vector<comm::Pending> begun;
  begun.push_back(comm.receive(in, peer, 7, {.name = "in vain"}));
  begun.push_back(comm.send(out, peer, 8, {.name = "in vain"}));
  begun.push_back(comm.receive(more, peer, 9, {.name = "in vain"}));
  return begun;
}

void abandon(comm::Communicator& comm) {
  std::vector<comm::Pending> begun = begin_in_vain(comm);
  comm.abandon("as it was told to");
  begun.push_back(comm.barrier());
  for (const comm::Pending& one : begun) {
    try {
      one.wait();
    } catch (const CommError& error) {
      fmt::print("rank {}: {}\n", comm.rank(), error.what());
    }
  }
  std::fflush(stdout);
  throw std::runtime_error("the end of a rank that gave up");
}

// What this rank does instead of all_reduce(x, "a"), all_reduce(y, "b") in the step of its fault.
void misbehave(const Script& script, comm::Communicator& comm, std::vector<float>& x, std::vector<float>& y) {
  std::vector<int32_t> whole(x.size(), 1);
  std::vector<int64_t> shape = {static_cast<int64_t>(x.size()) / 10, 10};
  if (script.fault == "kill") ::raise(SIGKILL);
  if (script.fault == "stop") ::raise(SIGSTOP);
  if (script.fault == "exit") std::exit(7);
  if (script.fault == "vanish") std::_Exit(0);
  if (script.fault == "throw") throw std::runtime_error("a bug of the user's");
  if (script.fault == "type") comm.all_reduce(whole, ReduceOp::kSum, {.name = "a"}).wait();
  if (script.fault == "shape") comm.all_reduce(x, ReduceOp::kSum, {.name = "a", .shape = shape}).wait();
  if (script.fault == "size") {
    x.resize(x.size() / 2);
    comm.all_reduce(x, ReduceOp::kSum, {.name = "a"}).wait();
  }
  if (script.fault == "op") comm.broadcast(x, 0, {.name = "a"}).wait();
  if (script.fault == "order") {
    comm.all_reduce(y, ReduceOp::kSum, {.name = "b"}).wait();
    comm.all_reduce(x, ReduceOp::kSum, {.name = "a"}).wait();
  }
  if (script.fault == "skip") comm.all_reduce(y, ReduceOp::kSum, {.name = "b"}).wait();
  if (script.fault == "abandon") abandon(comm);
  if (script.fault == "unwind") {
    begin_in_vain(comm);
    throw std::runtime_error("a bug of the user's");
  }
  if (script.fault == "nap") std::this_thread::sleep_for(std::chrono::seconds(3));
  // Alive but never comes: only the deadline helps. Bounded, should everything else fail.
  if (script.fault == "slow") std::this_thread::sleep_for(std::chrono::seconds(60));
}

void run(const Script& script) {
  cluster::JoinOptions options;
  options.timeout = script.timeout;
  options.join_timeout = 30;
  World world = join(options, {.backend = script.backend});
  comm::Communicator& comm = world.comm();
  for (int step = 0; step < script.steps; ++step) {
    std::vector<float> x(static_cast<size_t>(script.count), static_cast<float>(comm.rank() + 1));
    std::vector<float> y(static_cast<size_t>(script.count), 1.0f);
    bool leaves = script.fault == "leave" || script.fault == "receive";
    if (leaves && comm.rank() == script.rank && step == script.step) return;
    if (script.fault == "receive" && comm.rank() == script.rank - 1 && step == script.step)
      comm.receive(x, script.rank, 0, {.name = "a"}).wait();
    if (comm.rank() == script.rank && step == script.step) misbehave(script, comm, x, y);
    comm.all_reduce(x, ReduceOp::kSum, {.name = "a"}).wait();
    comm.all_reduce(y, ReduceOp::kSum, {.name = "b"}).wait();
    float wants = static_cast<float>(comm.size() * (comm.size() + 1) / 2);
    for (float value : x) {
      if (value != wants) throw std::runtime_error(fmt::format("wrong sum: {} instead of {}", value, wants));
    }
  }
  fmt::print("rank {} of {} over {}: {} steps\n", comm.rank(), comm.size(), comm.backend(), script.steps);
}

}  // namespace

int main(int argc, char** argv) {
  Script script;
  if (argc > 1) script.backend = argv[1];
  if (argc > 2) script.steps = std::atoi(argv[2]);
  if (argc > 3) script.count = std::atoll(argv[3]) / 4;
  if (argc > 6) {
    script.fault = argv[4];
    script.rank = std::atoi(argv[5]);
    script.step = std::atoi(argv[6]);
  }
  if (argc > 7) script.timeout = std::atof(argv[7]);
  try {
    run(script);
    return 0;
  } catch (const Error& error) {
    fmt::print(stderr, "error: {}\n", error.what());
    return static_cast<int>(error.code());
  } catch (const std::exception& error) {
    fmt::print(stderr, "error: {}\n", error.what());
    return 1;
  }
}
