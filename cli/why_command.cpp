#include "cli/why_command.h"

#include <fmt/format.h>

#include "cli/output.h"
#include "yoke/comm/flight_analysis.h"

namespace yoke::cli {
namespace {

nlohmann::json to_json(const comm::FlightAnalysis& analysis) {
  nlohmann::json out;
  out["ranks"] = nlohmann::json::array();
  for (const comm::RankRecord& record : analysis.ranks) {
    nlohmann::json rank = {{"rank", record.rank},
                           {"host", record.host},
                           {"pid", record.pid},
                           {"operations", record.operations.size()}};
    if (!record.operations.empty()) {
      rank["last_call"] = record.operations.back().call;
      rank["last_state"] = record.operations.back().state;
    }
    out["ranks"].push_back(rank);
  }
  out["missing"] = analysis.missing;
  if (analysis.first_divergence) {
    const comm::Divergence& first = *analysis.first_divergence;
    out["first_divergence"] = {{"rank", first.rank},
                               {"sequence", first.sequence},
                               {"group", first.group},
                               {"expected", first.expected},
                               {"got", first.got}};
  }
  if (analysis.culprit) {
    out["culprit"] = {{"rank", analysis.culprit->rank},
                      {"host", analysis.culprit->host},
                      {"pid", analysis.culprit->pid},
                      {"kind", analysis.culprit->kind},
                      {"cause", analysis.culprit->what}};
  }
  return out;
}

void print_text(const comm::FlightAnalysis& analysis) {
  if (analysis.culprit) fmt::print("cause       {}\n", analysis.culprit->what);
  if (analysis.first_divergence) {
    const comm::Divergence& first = *analysis.first_divergence;
    fmt::print("diverged    rank {} at operation {} of group '{}'\n", first.rank, first.sequence,
               first.group);
    fmt::print("  others    {}\n  rank {:<4} {}\n", first.expected, first.rank, first.got);
  } else {
    fmt::print("diverged    none: all ranks called the same operations\n");
  }
  for (const comm::RankRecord& record : analysis.ranks) {
    fmt::print("rank {:<6} {} (pid {})", record.rank, record.host, record.pid);
    if (!record.operations.empty())
      fmt::print(": last {}, {}", record.operations.back().call, record.operations.back().state);
    fmt::print("\n");
  }
  if (!analysis.missing.empty())
    fmt::print("no record   from ranks {} (killed, or on another machine)\n",
               fmt::join(analysis.missing, ", "));
}

}  // namespace

int explain_failure(const CommandLine& line) {
  comm::FlightAnalysis analysis = comm::analyse_flight(comm::read_flight_records(line.why.directory));
  if (line.json)
    print_json(to_json(analysis));
  else
    print_text(analysis);
  return 0;
}

}  // namespace yoke::cli
