#include "cli/ps_command.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <thread>

#include "cli/output.h"
#include "cli/ps_top_view.h"
#include "yoke/base/clock.h"
#include "yoke/base/error.h"
#include "yoke/base/text.h"
#include "yoke/cluster/job_contact.h"

namespace yoke::cli {
namespace {

constexpr double kAnswerSeconds = 5;
constexpr const char* kServerRole = "parameter server";

bool is_server(const cluster::Member& member) {
  return member.role.find(kServerRole) != std::string::npos;
}

PsJobStatus look(cluster::JobContact& job) {
  PsJobStatus status;
  for (const cluster::JobContact::Rank& rank : job.ranks(Deadline::after(kAnswerSeconds))) {
    if (!is_server(rank.member)) continue;
    const std::string name = fmt::format("{} (rank {})", rank.member.role, rank.member.rank);
    if (rank.ended) {
      status.absent.push_back(name + ": has ended");
      continue;
    }
    try {
      const Deadline deadline = Deadline::after(kAnswerSeconds);
      status.servers.push_back(ps::parse_server_status(job.ask(rank.member.rank, ps::kAskStatus, deadline)));
    } catch (const CommError& error) {
      status.absent.push_back(fmt::format("{}: {}", name, error.what()));
    }
  }
  status.time = now_seconds();
  return status;
}

// On a terminal the table replaces the previous one.
void show(const PsJobStatus& status, const std::optional<PsJobStatus>& before, bool json) {
  if (json) {
    fmt::print("{}\n", to_json(status, before).dump());
  } else if (::isatty(STDOUT_FILENO) == 1) {
    std::string screen = "\x1b[H";
    for (char letter : draw_table(status, before))
      screen += letter == '\n' ? "\x1b[K\n" : std::string(1, letter);
    fmt::print("{}{}\x1b[J", before ? "" : "\x1b[2J", screen);
  } else {
    fmt::print("{}\n", draw_table(status, before));
  }
  std::fflush(stdout);
}

std::string role_of(const PsArguments& arguments) {
  return arguments.worker >= 0 ? fmt::format("worker {}", arguments.worker)
                               : fmt::format("{} {}", kServerRole, arguments.server);
}

cluster::JobContact::Rank find_role(const std::vector<cluster::JobContact::Rank>& ranks,
                                    const std::string& role) {
  const std::string kind = role.substr(0, role.rfind(' '));
  std::vector<std::string> known;
  for (const cluster::JobContact::Rank& rank : ranks) {
    if (rank.member.role == role) return rank;
    if (rank.member.role.starts_with(kind)) known.push_back(rank.member.role);
  }
  throw ConfigError("{} is not in this job, which has {}.", role,
                    known.empty() ? "no parameter servers" : join(known));
}

// Empty: it leaves.
std::string ask_to_leave(cluster::JobContact& job, const PsArguments& arguments, Deadline deadline) {
  if (arguments.worker < 0) {
    const int rank = find_role(job.ranks(deadline), role_of(arguments)).member.rank;
    return job.ask(rank, ps::kAskLeave, deadline);
  }
  std::string refusal = "no parameter server of this job answers";
  for (const cluster::JobContact::Rank& rank : job.ranks(deadline)) {
    if (!is_server(rank.member) || rank.ended) continue;
    refusal = job.ask(rank.member.rank, fmt::format("{}{}", ps::kAskWorkerLeave, arguments.worker), deadline);
    if (!refusal.ends_with(ps::kNotScheduler)) break;
  }
  return refusal;
}

}  // namespace

int end_ps_member(const CommandLine& line) {
  constexpr double kLeaveSeconds = 60;
  const Deadline deadline = Deadline::after(kLeaveSeconds);
  if (line.ps.worker < 0 && line.ps.server < 0)
    throw ConfigError(
        "yoke ps leave ADDRESS: which one? Give SERVER, the number of a server, or --worker N.");
  const std::string role = role_of(line.ps);
  const char* kind = line.ps.worker >= 0 ? "worker" : "server";
  const int number = line.ps.worker >= 0 ? line.ps.worker : line.ps.server;
  cluster::JobContact job = cluster::find_job(line.ps.job, Deadline::after(kAnswerSeconds));
  if (find_role(job.ranks(deadline), role).ended) throw ConfigError("{} {} has ended already.", kind, number);
  if (const std::string refusal = ask_to_leave(job, line.ps, deadline); !refusal.empty())
    throw ConfigError("{}.", refusal);
  while (!find_role(job.ranks(deadline), role).ended) {
    if (deadline.passed()) throw CommError("{} {} has not left within {:.0f} s", kind, number, kLeaveSeconds);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  if (line.json)
    print_json({{kind, number}, {"seconds", deadline.elapsed()}});
  else
    fmt::print("{} {} has left after {:.2f} s\n", kind, number, deadline.elapsed());
  return 0;
}

int show_ps_top(const CommandLine& line) {
  const PsArguments& arguments = line.ps;
  cluster::JobContact job = cluster::find_job(arguments.job, Deadline::after(kAnswerSeconds));
  std::optional<PsJobStatus> before;
  for (;;) {
    PsJobStatus status;
    try {
      status = look(job);
    } catch (const CommError& error) {
      if (!before) throw;
      if (!line.json) fmt::print("the job has ended\n");
      return 0;
    }
    if (status.servers.empty() && !before)
      throw ConfigError("{}: this job has no parameter server that answers{}{}", arguments.job.where,
                        status.absent.empty() ? "" : ": ", fmt::join(status.absent, "; "));
    show(status, before, line.json);
    if (arguments.once) return 0;
    before = std::move(status);
    std::this_thread::sleep_for(std::chrono::duration<double>(arguments.interval));
  }
}

}  // namespace yoke::cli
