#include "yoke/parallel/elastic.h"

#include <fmt/format.h>

#include "yoke/base/error.h"
#include "yoke/parallel/registry.h"

namespace yoke::parallel {
namespace {

[[noreturn]] void refuse(const std::string& setting, const std::string& why) {
  throw ConfigError(
      "elastic.enabled = true cannot be combined with {}: {}. Remove one of the two; elastic jobs are data "
      "parallel with parallel.sync = \"allreduce\".",
      setting, why);
}

}  // namespace

void check_elastic(const Choices& choices, const std::string& optimizer, bool gpu) {
  for (const Row& row : choose(choices).rows) {
    if (row.name == "whole" || row.name == "one_pass" || row.name == "all_reduce") continue;
    refuse(row.setting, row.name == "threads"  ? "its replicas share one process"
                        : row.name == "hybrid" ? "the shares of the ranks are fixed when the job starts"
                                               : "the state of a lost rank would be lost with it");
  }
  const ParallelOptions& parallel = choices.parallel;
  const bool nccl = gpu && parallel.backend == "auto";
  if (parallel.backend == "mpi" || parallel.backend == "nccl" || nccl)
    refuse(nccl ? "NCCL, the backend of GPUs" : fmt::format("parallel.backend = \"{}\"", parallel.backend),
           "it cannot form a second group after a rank is lost; set parallel.backend = \"tcp\" or \"shm\"");
  if (parallel.split != "equal")
    refuse(fmt::format("parallel.split = \"{}\"", parallel.split), "shares are given by rank");
  if (optimizer == "lbfgs")
    refuse("train.optimizer = \"lbfgs\"", "its line search communicates between updates of the parameters");
}

}  // namespace yoke::parallel
