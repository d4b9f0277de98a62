// Your own program on several ranks, without LibTorch:
//   build/yoke run --nproc 4 build/example_hello_ranks
// or under torchrun --no-python, mpirun, srun: the same binary, no flag.
#include <fmt/core.h>

#include <vector>

#include "yoke/base/error.h"
#include "yoke/comm/join.h"

int main() {
  try {
    yoke::World world = yoke::join();  // who am I, who are the others: from the environment
    std::vector<float> x(1000, static_cast<float>(world.rank() + 1));
    world.comm().all_reduce(x, yoke::ReduceOp::kMean, {.name = "x"}).wait();
    fmt::print("rank {} of {} over {}: the mean is {}\n", world.rank(), world.size(), world.comm().backend(),
               x[0]);
    return 0;
  } catch (const yoke::Error& error) {
    fmt::print(stderr, "error: {}\n", error.what());
    return static_cast<int>(error.code());
  }
}
