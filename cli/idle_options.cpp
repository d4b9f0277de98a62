#include "cli/idle_options.h"

#include <algorithm>

#include "yoke/base/error.h"
#include "yoke/base/text.h"
#include "yoke/plan/policies/rule.h"

namespace yoke::cli {
namespace {

bool has_any_of(const std::vector<std::string>& words, std::initializer_list<const char*> any) {
  return std::any_of(words.begin(), words.end(), [&](const std::string& word) {
    return std::find(any.begin(), any.end(), word) != any.end();
  });
}

const char* idle_unless(bool works, const char* why) {
  return works ? "" : why;
}

const char* of_a_policy(const CommandLine& line) {
  return idle_unless(!line.bench_ps.throughput, "--throughput measures without a policy");
}

const char* of_throughput(const CommandLine& line) {
  return idle_unless(line.bench_ps.throughput, "it requires --throughput");
}

const char* of_objective(const CommandLine& line) {
  if (line.bench_ps.throughput) return of_a_policy(line);
  return idle_unless(!line.bench_ps.objective.empty(), "it requires --objective");
}

const char* of_several_ranks(const CommandLine& line) {
  const std::vector<int>& sizes = line.bench_scaling.nproc;
  return idle_unless(std::any_of(sizes.begin(), sizes.end(), [](int size) { return size > 1; }),
                     "there is only one rank");
}

bool any_rule(const LabArguments& lab, bool (*wanted)(const plan::RuleTraits&)) {
  if (lab.policies == "all") return true;
  std::vector<std::string> names = split(lab.policies, ',');
  return std::any_of(names.begin(), names.end(), [&](const std::string& name) {
    return wanted(plan::traits_of(plan::parse_rule(name)));
  });
}

using Line = const CommandLine&;

struct OptionRow {
  const char* command;
  const char* option;
  const char* (*check)(Line);
};

const char* of_draws(const CommandLine& line) {
  return idle_unless(line.generate.temperature > 0, "--temperature 0 draws nothing");
}

const OptionRow kOptionRows[] = {
    {"generate", "--top-k", of_draws},
    {"generate", "--top-p", of_draws},
    {"generate", "--seed", of_draws},
    {"eval", "--outputs", [](Line l) { return idle_unless(!l.eval.inputs.empty(), "it requires --inputs"); }},
    {"estimate", "--batch",
     [](Line l) { return idle_unless(l.estimate.steps > 0, "--steps 0 measures nothing"); }},
    {"simulate", "--chunks",
     [](Line l) { return idle_unless(l.simulate.schedule == "interleaved", "only interleaved has chunks"); }},
    {"simulate", "--transfer",
     [](Line l) { return idle_unless(l.simulate.stages != 1, "a single stage sends nothing"); }},
    {"bench scaling", "--bucket", of_several_ranks},
    {"bench scaling", "--backend", of_several_ranks},
    {"bench collectives", "--algorithm",
     [](Line l) {
       bool free = !has_any_of({l.bench_collectives.backend}, {"mpi", "nccl"}) ||
                   l.bench_collectives.algorithms == std::vector<std::string>{"auto"};
       return idle_unless(free, "MPI and NCCL choose their own algorithms");
     }},
    {"bench collectives", "--reduce",
     [](Line l) {
       return idle_unless(has_any_of(l.bench_collectives.ops, {"all_reduce", "reduce", "reduce_scatter"}),
                          "no --op is a reduction");
     }},
    {"bench collectives", "--timeout",
     [](Line l) {
       return idle_unless(l.bench_collectives.backend != "local", "--backend local uses its own memory");
     }},
    {"bench ps", "--policy", of_a_policy},
    {"bench ps", "--k", of_a_policy},
    {"bench ps", "--max-delay", of_a_policy},
    {"bench ps", "--delay", of_a_policy},
    {"bench ps", "--delay-workers",
     [](Line l) {
       if (l.bench_ps.throughput) return of_a_policy(l);
       return idle_unless(l.bench_ps.delay != "none" || l.bench_ps.link_delay != "none",
                          "it requires --delay or --link-delay");
     }},
    {"bench ps", "--link-delay", of_a_policy},
    {"bench ps", "--bandwidth",
     [](Line l) {
       return idle_unless(l.bench_ps.clock == "virtual" && !l.bench_ps.throughput,
                          "real workers use the links they have; it is for --clock virtual");
     }},
    {"lab sparse", "--delay-workers",
     [](Line l) { return idle_unless(l.lab_sparse.delay != "none", "it requires --delay"); }},
    {"bench ps", "--compute", of_a_policy},
    {"bench ps", "--updates", of_a_policy},
    {"bench ps", "--clock", of_a_policy},
    {"bench ps", "--seed", of_a_policy},
    {"bench ps", "--objective", of_a_policy},
    {"bench ps", "--noise", of_objective},
    {"bench ps", "--lr", of_objective},
    {"bench ps", "--backend",
     [](Line l) {
       return idle_unless(l.bench_ps.throughput || l.bench_ps.clock == "real",
                          "the virtual clock sends nothing");
     }},
    {"bench ps", "--in-flight", of_throughput},
    {"bench ps", "--seconds", of_throughput},
    {"ps top", "--interval", [](Line l) { return idle_unless(!l.ps.once, "--once shows one state"); }},
    {"lab stragglers", "--k",
     [](Line l) {
       auto given = [](const plan::RuleTraits& rule) { return rule.k == plan::RuleTraits::kGiven; };
       return idle_unless(any_rule(l.lab, given), "no rule in --policies has a K");
     }},
    {"lab stragglers", "--max-delay",
     [](Line l) {
       auto gated = [](const plan::RuleTraits& rule) { return rule.gated; };
       return idle_unless(any_rule(l.lab, gated), "it is for bounded_delay and ssp");
     }},
    {"lab stragglers", "--delay-workers",
     [](Line l) { return idle_unless(l.lab.delay != "none", "it requires --delay"); }},
    {"lab stragglers", "--fault-free",
     [](Line l) { return idle_unless(l.lab.delay != "none", "without --delay every run is"); }},
};

}  // namespace

std::string idle_reason(const CommandLine& line, const std::string& option) {
  for (const OptionRow& row : kOptionRows)
    if (line.command == row.command && option == row.option) return row.check(line);
  return "";
}

void refuse_idle_options(const CommandLine& line) {
  for (const std::string& option : line.given) {
    std::string why = idle_reason(line, option);
    if (!why.empty())
      throw ConfigError("{} has no effect in this `yoke {}`: {}. Remove it.", option, line.command, why);
  }
}

bool is_conditional(const std::string& command, const std::string& option) {
  return std::any_of(std::begin(kOptionRows), std::end(kOptionRows),
                     [&](const OptionRow& row) { return command == row.command && option == row.option; });
}

}  // namespace yoke::cli
