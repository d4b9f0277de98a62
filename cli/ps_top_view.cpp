#include "cli/ps_top_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "yoke/base/units.h"

namespace yoke::cli {
namespace {

const ps::ServerStatus* find_server(const std::optional<PsJobStatus>& job, int64_t id) {
  if (!job) return nullptr;
  auto found = std::find_if(job->servers.begin(), job->servers.end(),
                            [&](const ps::ServerStatus& one) { return one.id == id; });
  return found == job->servers.end() ? nullptr : &*found;
}

// How the numbers of two states of a job differ, for each second between them.
class Rates {
 public:
  Rates(const PsJobStatus& now, const std::optional<PsJobStatus>& before)
      : seconds_(before ? now.time - before->time : 0) {}

  template <class Status>
  std::optional<double> of(const Status& now, const Status* before, int64_t Status::*number) const {
    if (before == nullptr || !(seconds_ > 0) || now.*number < before->*number) return std::nullopt;
    return static_cast<double>(now.*number - before->*number) / seconds_;
  }

 private:
  double seconds_;
};

std::string bytes_per_second(const std::optional<double>& rate) {
  return rate ? format_bytes(*rate) : "-";
}

std::string per_second(const std::optional<double>& rate) {
  return rate ? fmt::format("{:.1f}", *rate) : "-";
}

const ps::WorkerStatus* find_worker(const ps::ServerStatus* scheduler, int64_t id) {
  if (scheduler == nullptr) return nullptr;
  auto found = std::find_if(scheduler->workers.begin(), scheduler->workers.end(),
                            [&](const ps::WorkerStatus& one) { return one.id == id; });
  return found == scheduler->workers.end() ? nullptr : &*found;
}

const ps::ServerStatus* scheduler_of(const std::optional<PsJobStatus>& job) {
  return job ? job->scheduler() : nullptr;
}

}  // namespace

const ps::ServerStatus* PsJobStatus::scheduler() const {
  auto found =
      std::find_if(servers.begin(), servers.end(), [](const ps::ServerStatus& one) { return one.schedules; });
  return found == servers.end() ? nullptr : &*found;
}

std::string draw_table(const PsJobStatus& now, const std::optional<PsJobStatus>& before) {
  const Rates rates(now, before);
  const ps::ServerStatus* scheduler = now.scheduler();
  std::string text;
  if (scheduler != nullptr)
    text += fmt::format("version {}, {} updates/s, {} servers, {} workers\n", scheduler->version,
                        per_second(rates.of(*scheduler, scheduler_of(before), &ps::ServerStatus::version)),
                        now.servers.size(), scheduler->workers.size());
  else
    text += "the scheduler does not answer\n";
  text += fmt::format("{:<6}{:>7}{:>7}{:>9}{:>11}{:>10}{:>10}{:>10}{:>5}{:>5}\n", "server", "ranges",
                      "copies", "memory", "clock", "pushed/s", "pulled/s", "copied/s", "repl", "lag");
  for (const ps::ServerStatus& one : now.servers) {
    const ps::ServerStatus* then = find_server(before, one.id);
    text += fmt::format("{:<6}{:>7}{:>7}{:>9}{:>11}{:>10}{:>10}{:>10}{:>5}{:>5}\n",
                        fmt::format("{}{}", one.id, one.schedules ? "*" : ""), one.ranges, one.copies,
                        format_bytes(static_cast<double>(one.bytes)), one.clock,
                        bytes_per_second(rates.of(one, then, &ps::ServerStatus::pushed_bytes)),
                        bytes_per_second(rates.of(one, then, &ps::ServerStatus::pulled_bytes)),
                        bytes_per_second(rates.of(one, then, &ps::ServerStatus::replica_bytes)), one.replicas,
                        one.lag);
  }
  for (const std::string& one : now.absent) text += one.substr(0, 80) + "\n";
  if (scheduler == nullptr) return text;
  text += fmt::format("{:<7}{:>10}{:>12}{:>11}{:>14}  {}\n", "worker", "clock", "minibatch", "staleness",
                      "gradients/s", "state");
  for (const ps::WorkerStatus& one : scheduler->workers) {
    const ps::WorkerStatus* then = find_worker(scheduler_of(before), one.id);
    text += fmt::format("{:<7}{:>10}{:>12}{:>11}{:>14}  {}\n", one.id, one.clock, one.minibatch,
                        one.staleness, per_second(rates.of(one, then, &ps::WorkerStatus::clock)), one.state);
  }
  return text;
}

nlohmann::json to_json(const PsJobStatus& now, const std::optional<PsJobStatus>& before) {
  const Rates rates(now, before);
  nlohmann::json json = {
      {"servers", nlohmann::json::array()}, {"workers", nlohmann::json::array()}, {"absent", now.absent}};
  for (const ps::ServerStatus& one : now.servers) {
    nlohmann::json server = ps::to_json(one);
    server.erase("workers");
    server.erase("version");
    json["servers"].push_back(std::move(server));
  }
  const ps::ServerStatus* scheduler = now.scheduler();
  if (scheduler == nullptr) return json;
  json["version"] = scheduler->version;
  if (auto rate = rates.of(*scheduler, scheduler_of(before), &ps::ServerStatus::version))
    json["updates_per_s"] = *rate;
  json["workers"] = ps::to_json(*scheduler)["workers"];
  return json;
}

}  // namespace yoke::cli
