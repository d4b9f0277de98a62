#include "cli/bench_collectives_command.h"

#include <fmt/core.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "cli/bench_figures.h"
#include "cli/output.h"
#include "yoke/base/error.h"
#include "yoke/base/file.h"
#include "yoke/base/json_text.h"
#include "yoke/base/log.h"
#include "yoke/base/memory.h"
#include "yoke/base/terminal.h"
#include "yoke/base/text.h"
#include "yoke/base/units.h"
#include "yoke/cluster/launcher/launcher.h"
#include "yoke/comm/bench/bench_collectives.h"
#include "yoke/comm/join.h"
#include "yoke/comm/nccl/nccl.h"
#include "yoke/comm/run_ranks.h"
#include "yoke/plan/summation/shares.h"
#include "yoke/report/table.h"

namespace yoke::cli {
namespace {

struct Row {
  comm::CollectiveBench bench;
  comm::CollectiveResult result;
  std::string backend;
  int ranks = 1;
};

// The algorithm that ran, requested or chosen.
std::string algorithm_name(const comm::CollectiveResult& result) {
  return result.algorithm ? plan::to_string(*result.algorithm) : "library";
}

// What can be requested by name on one machine.
std::vector<plan::Algorithm> algorithms_of(const std::string& backend, plan::Collective op) {
  if (backend == "mpi" || backend == "nccl") return {};  // their library chooses
  if (backend != "tcp" && backend != "hierarchical") return {plan::Algorithm::kDirect};
  return plan::algorithms_for(op);
}

void check_spares(const BenchCollectivesArguments& arguments, const comm::CollectiveBench& bench) {
  const bool adds = bench.reduce == ReduceOp::kSum || bench.reduce == ReduceOp::kMean;
  if (arguments.backend != "tcp" || bench.op != plan::Collective::kAllReduce || !adds ||
      bench.algorithm != plan::Algorithm::kSummation)
    throw ConfigError(
        "--spares {}: ranks that only sum take part in all_reduce by summation, of sums and means over tcp. "
        "Use --backend tcp --op all_reduce, and leave --algorithm out.",
        arguments.spares);
  if (arguments.nproc > 0) plan::summation_shares(arguments.nproc, arguments.spares);
}

void check(const BenchCollectivesArguments& arguments, const comm::CollectiveBench& bench) {
  // Under a launcher only the ranks know what `auto` selects.
  bool known = arguments.nproc > 0 || arguments.backend != "auto";
  if (bench.algorithm && known) {
    std::vector<std::string> names;
    for (plan::Algorithm one : algorithms_of(arguments.backend, bench.op))
      names.push_back(plan::to_string(one));
    std::string name = plan::to_string(*bench.algorithm);
    if (std::find(names.begin(), names.end(), name) == names.end())
      throw ConfigError("--algorithm {}: backend {} {} for {}. Leave it out, or use --backend tcp.", name,
                        arguments.backend == "auto" ? "shm" : arguments.backend,
                        names.empty() ? "lets its library choose" : "has " + join(names, " "),
                        plan::to_string(bench.op));
  }
  if (bench.spares > 0) check_spares(arguments, bench);
  double needed = static_cast<double>(bench.bytes) * std::max(1, arguments.nproc);
  auto memory = static_cast<double>(usable_memory_bytes());
  if (needed > memory)
    throw ConfigError("--bytes {}: {} rank{} need at least {}; this machine has {}.", bench.bytes,
                      std::max(1, arguments.nproc), arguments.nproc > 1 ? "s" : "", format_bytes(needed),
                      format_bytes(memory));
}

// All requested combinations, checked before any rank starts.
std::vector<comm::CollectiveBench> sweep(const BenchCollectivesArguments& arguments) {
  std::vector<comm::CollectiveBench> all;
  for (const std::string& op : arguments.ops) {
    for (const std::string& algorithm : arguments.algorithms) {
      for (const std::string& size : arguments.bytes) {
        comm::CollectiveBench bench;
        bench.op = plan::parse_collective(op);
        auto bytes = parse_bytes(size);
        if (!bytes) throw ConfigError("--bytes {}: not a size. Accepted: 1K, 64K, 16M, 25MB, …", size);
        bench.bytes = *bytes;
        bench.type = parse_data_type(arguments.dtype);
        bench.reduce = parse_reduce_op(arguments.reduce);
        if (algorithm != "auto") bench.algorithm = plan::parse_algorithm(algorithm);
        bench.spares = arguments.spares;
        if (bench.spares > 0 && !bench.algorithm) bench.algorithm = plan::Algorithm::kSummation;
        bench.iterations = arguments.iterations;
        bench.check = arguments.check;
        bench.private_memory = arguments.memory == "private";
        check(arguments, bench);
        all.push_back(bench);
      }
    }
  }
  return all;
}

std::vector<Row> run_here(comm::Communicator& comm, const std::vector<comm::CollectiveBench>& all) {
  comm::Copy copy = [](void* to, const void* from, size_t bytes) { std::memcpy(to, from, bytes); };
  if (comm.backend() == "nccl")
    copy = [](void* to, const void* from, size_t bytes) { comm::nccl_copy(to, from, bytes); };
  std::vector<Row> rows;
  for (const comm::CollectiveBench& bench : all) {
    if (comm.rank() == 0)
      log::info("bench: {} {} on {} ranks over {}", plan::to_string(bench.op),
                format_bytes(static_cast<double>(bench.bytes)), comm.size(), comm.backend());
    rows.push_back({bench, comm::bench_collective(comm, bench, copy), comm.backend(), comm.size()});
  }
  return rows;
}

nlohmann::json to_json(const Row& row) {
  const comm::CollectiveResult& result = row.result;
  nlohmann::json json = {{"op", plan::to_string(row.bench.op)},
                         {"backend", row.backend},
                         {"algorithm", algorithm_name(result)},
                         {"ranks", row.ranks},
                         {"bytes", row.bench.bytes},
                         {"dtype", to_string(row.bench.type)},
                         {"memory", row.bench.private_memory ? "private" : "shared"},
                         {"seconds", {{"median", result.median}, {"p95", result.p95}}},
                         {"algbw", result.algbw},
                         {"busbw", result.busbw},
                         {"bytes_sent", result.bytes_sent},
                         {"messages", result.messages},
                         {"correct", result.correct}};
  if (result.limit_fraction) json["limit_fraction"] = *result.limit_fraction;
  return json;
}

int show(const CommandLine& line, const std::vector<Row>& rows) {
  bool correct = true;
  nlohmann::json results = nlohmann::json::array();
  report::Table table({"op", "algorithm", "bytes", "median", "p95", "algbw", "busbw", "of limit", "ok"});
  for (const Row& row : rows) {
    correct = correct && row.result.correct;
    results.push_back(to_json(row));
    table.add({plan::to_string(row.bench.op), algorithm_name(row.result), fmt::format("{}", row.bench.bytes),
               format_duration(row.result.median), format_duration(row.result.p95),
               fmt::format("{:.3f}", row.result.algbw / 1e9), fmt::format("{:.3f}", row.result.busbw / 1e9),
               row.result.limit_fraction ? fmt::format("{:.0f} %", *row.result.limit_fraction * 100) : "-",
               row.result.correct ? "yes" : "NO"});
  }
  if (line.figures.wanted()) write_figures(line.figures, titled(collectives_figures(results), line));
  if (const std::string& file = line.bench_collectives.result_file; !file.empty()) {
    write_file_atomically(file, results.dump());
  } else if (line.json) {
    print_json({{"results", results}});
  } else {
    int width = terminal::is_terminal(STDOUT_FILENO) ? terminal::width(STDOUT_FILENO) : 0;
    fmt::print("{} ranks over {}; algbw and busbw in GB/s\n{}", rows.front().ranks, rows.front().backend,
               table.to_text(width));
  }
  return correct ? 0 : static_cast<int>(ExitCode::kVerification);
}

// MPI ranks are started by its own mpirun. The variables allow Open MPI to oversubscribe cores and to run as
// root.
[[noreturn]] void become_mpirun(const CommandLine& line) {
  for (const char* name :
       {"OMPI_MCA_rmaps_base_oversubscribe", "OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"})
    ::setenv(name, "1", 0);
  std::string self = std::filesystem::read_symlink("/proc/self/exe");
  std::string ranks = fmt::format("{}", line.bench_collectives.nproc);
  for (const char* mpirun : {"mpirun.openmpi", "mpirun.mpich", "mpirun"}) {
    std::vector<std::string> words = {mpirun, "-np", ranks, self};
    words.insert(words.end(), line.words.begin(), line.words.end());
    std::vector<char*> pointers;
    for (std::string& word : words) pointers.push_back(word.data());
    pointers.push_back(nullptr);
    ::execvp(mpirun, pointers.data());
  }
  throw ConfigError(
      "backend mpi: no mpirun on the path. Install Open MPI or MPICH (openmpi-bin, mpich), or use your own "
      "launcher.");
}

int run_as_rank(const CommandLine& line, const std::vector<comm::CollectiveBench>& all) {
  const BenchCollectivesArguments& arguments = line.bench_collectives;
  cluster::JoinOptions options;
  options.timeout = arguments.timeout;
  World world = join(options, {.backend = arguments.backend, .spares = arguments.spares});
  std::vector<Row> rows = run_here(world.comm(), all);
  bool speaks = world.rank() == 0;
  return speaks ? show(line, rows) : 0;
}

}  // namespace

nlohmann::json measure_collectives(const BenchCollectivesArguments& arguments,
                                   const std::filesystem::path& file) {
  sweep(arguments);  // refuses before anything starts what the ranks would refuse
  std::vector<std::string> words = {"bench",
                                    "collectives",
                                    "-q",
                                    "--backend",
                                    arguments.backend,
                                    "--op",
                                    join(arguments.ops, ","),
                                    "--bytes",
                                    join(arguments.bytes, ","),
                                    "--algorithm",
                                    join(arguments.algorithms, ","),
                                    "--iterations",
                                    fmt::format("{}", arguments.iterations),
                                    "--rank-result",
                                    file.string()};
  cluster::LaunchOptions job = cluster::own_job(arguments.nproc, words);
  job.stdout_is_taken = true;
  std::filesystem::remove(file);
  if (int code = cluster::run_job(job); code != 0)
    throw Error(static_cast<ExitCode>(code), "the ranks that measure failed; see above");
  return parse_json(read_file(file), file.string());
}

int bench_collectives(const CommandLine& line) {
  const BenchCollectivesArguments& arguments = line.bench_collectives;
  const std::vector<std::string>& known = comm::backend_names();
  bool local = arguments.backend == "local";
  if (!local && std::find(known.begin(), known.end(), arguments.backend) == known.end())
    throw ConfigError("--backend {}: unknown. Accepted: local {}.", arguments.backend, join(known, " "));
  if (arguments.memory != "shared" && arguments.memory != "private")
    throw ConfigError("--memory {}: unknown. Accepted: shared private.", arguments.memory);
  check_figures(line.figures);
  std::vector<comm::CollectiveBench> all = sweep(arguments);
  if (local) {
    std::vector<Row> rows;
    comm::run_ranks(std::max(1, arguments.nproc), [&](comm::Communicator& comm) {
      std::vector<Row> mine = run_here(comm, all);
      if (comm.rank() == 0) rows = std::move(mine);
    });
    return show(line, rows);
  }
  if (arguments.nproc > 0 && arguments.backend == "mpi") become_mpirun(line);
  if (arguments.nproc > 0) {
    cluster::LaunchOptions job = cluster::own_job(arguments.nproc + arguments.spares, line.words);
    job.typed = line.typed;
    return cluster::run_job(job);
  }
  return run_as_rank(line, all);
}

}  // namespace yoke::cli
