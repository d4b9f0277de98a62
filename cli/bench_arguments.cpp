#include "cli/bench_arguments.h"

#include <CLI/CLI.hpp>

#include "cli/positive.h"

namespace yoke::cli {
namespace {

// Values with commas between them.
template <class T>
CLI::Option* add_list(CLI::App& command, const std::string& flag, std::vector<T>& values,
                      const std::string& help) {
  return command.add_option(flag, values, help)->delimiter(',')->capture_default_str();
}

void add_steps(CLI::App& command, int64_t& steps) {
  command.add_option("--steps", steps, "timed steps per configuration")
      ->capture_default_str()
      ->check(positive());
}

}  // namespace

void add_options(CLI::App& command, BenchStepArguments& arguments) {
  command.add_option("--model", arguments.models, "models")->delimiter(',')->required();
  add_list(command, "--batch", arguments.batches, "batch sizes");
  add_list(command, "--precision", arguments.precisions, "fp32 tf32 bf16 fp16");
  add_list(command, "--device", arguments.devices, "cpu cuda");
  add_list(command, "--recompute", arguments.recomputes, "none blocks sqrt budget:<bytes>");
  command.add_option("--threads", arguments.threads, "CPU threads; 0: all cores")->capture_default_str();
  add_steps(command, arguments.steps);
  command
      .add_flag("--largest-batch", arguments.largest_batch,
                "find the largest batch that fits, then measure it")
      ->excludes("--batch");
  command.add_flag("--anatomy", arguments.anatomy,
                   "also: operations, memory by block and along the step, device peaks (--json)");
  // Internal: between a lab and the process that measures for it
  command.add_option("--rank-result", arguments.result_file)->group("");
}

void add_options(CLI::App& command, BenchKernelsArguments& arguments) {
  command.add_option("--device", arguments.device, "cpu (one thread) or cuda")
      ->capture_default_str()
      ->check(CLI::IsMember({"cpu", "cuda"}));
  command.add_option("--precision", arguments.precision, "fp32; on cuda also bf16 and fp16")
      ->capture_default_str()
      ->check(CLI::IsMember({"fp32", "bf16", "fp16"}));
  command.add_option("--rows", arguments.rows, "rows of the matrices; 0: 1024, on cuda 16384")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 20));
}

void add_options(CLI::App& command, BenchScalingArguments& arguments) {
  command.add_option("--model", arguments.models, "models")->delimiter(',');
  add_list(command, "--nproc", arguments.nproc, "numbers of ranks on this machine")
      ->check(CLI::Range(1, 1024));
  add_list(command, "--batch", arguments.batches, "batch sizes per rank");
  add_list(command, "--precision", arguments.precisions, "fp32 tf32 bf16 fp16");
  add_list(command, "--bucket", arguments.buckets, "bucket sizes");
  command.add_option("--device", arguments.device, "cpu or cuda")->capture_default_str();
  command.add_option("--backend", arguments.backend, "auto shm tcp hierarchical mpi nccl")
      ->capture_default_str();
  command.add_option("--threads", arguments.threads, "CPU threads per rank; 0: all cores divided by ranks")
      ->capture_default_str();
  add_steps(command, arguments.steps);
  // Internal: between the command and its ranks
  command.add_option("--rank-result", arguments.result_file)->group("");
  command.final_callback([&arguments] {
    if (arguments.models.empty() && arguments.result_file.empty()) throw CLI::RequiredError("--model");
  });
}

void add_options(CLI::App& command, BenchCollectivesArguments& arguments) {
  command
      .add_option("--nproc", arguments.nproc,
                  "ranks to start on this machine; without it: one rank of a launcher's job")
      ->check(CLI::Range(1, 1024))
      ->option_text("N");
  command
      .add_option("--spares", arguments.spares, "additional ranks that only sum, for the algorithm summation")
      ->check(CLI::Range(0, 1024))
      ->option_text("K");
  command.add_option("--backend", arguments.backend, "auto local shm tcp hierarchical mpi nccl")
      ->capture_default_str();
  add_list(command, "--op", arguments.ops,
           "collectives: all_reduce reduce reduce_scatter all_gather all_to_all broadcast …");
  add_list(command, "--bytes", arguments.bytes, "array sizes [1K,64K,1M,16M,64M]")->option_text("SIZES");
  command.add_option("--dtype", arguments.dtype, "fp32 fp64 fp16 bf16 int8 … int64")->capture_default_str();
  command.add_option("--reduce", arguments.reduce, "sum mean max min prod")->capture_default_str();
  add_list(command, "--algorithm", arguments.algorithms,
           "auto ring tree halving_doubling star direct hierarchical exchange summation");
  command.add_option("--iterations", arguments.iterations, "timed samples; 0: automatic")
      ->check(CLI::NonNegativeNumber)
      ->option_text("N");
  command.add_option("--memory", arguments.memory, "shared (zero-copy) or private")->capture_default_str();
  command.add_option("--timeout", arguments.timeout, "timeout of one operation in seconds")
      ->check(positive());
  command.add_flag("--check,!--no-check", arguments.check, "verify the results [on]");
  // Internal: between a command and its ranks
  command.add_option("--rank-result", arguments.result_file)->group("");
}

void add_options(CLI::App& command, BenchMessengerArguments& arguments) {
  add_list(command, "--backend", arguments.backends, "shm tcp");
  add_list(command, "--bytes", arguments.bytes, "payload sizes");
  command.add_option("--seconds", arguments.seconds, "duration of each measurement")
      ->capture_default_str()
      ->check(positive());
}

}  // namespace yoke::cli
