#include "yoke/ps/accounting.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace yoke::ps {

void Accounting::count(int64_t one) {
  ++gradients;
  staleness_sum += one;
  size_t bin = std::min(static_cast<size_t>(one), kBins - 1);
  if (bin >= staleness.size()) staleness.resize(bin + 1);
  ++staleness[bin];
}

double Accounting::mean_staleness() const {
  return gradients == 0 ? 0 : static_cast<double>(staleness_sum) / static_cast<double>(gradients);
}

double Accounting::fresh() const {
  return gradients == 0 ? 0 : static_cast<double>(staleness.front()) / static_cast<double>(gradients);
}

double Accounting::idle_fraction() const {
  double idle = 0;
  for (const WorkerTime& worker : workers) idle += worker.idle;
  double all = seconds * static_cast<double>(workers.size());
  return all > 0 ? std::clamp(idle / all, 0.0, 1.0) : 0;
}

double Accounting::seconds_per_update() const {
  return updates == 0 ? 0 : seconds / static_cast<double>(updates);
}

nlohmann::json to_json(const Accounting& accounting) {
  nlohmann::json workers = nlohmann::json::array();
  for (const WorkerTime& one : accounting.workers)
    workers.push_back({{"worker", one.id},
                       {"gradients", one.gradients},
                       {"cancelled", one.cancelled},
                       {"compute_seconds", one.compute},
                       {"push_seconds", one.push},
                       {"pull_seconds", one.pull},
                       {"idle_seconds", one.idle},
                       {"cancelled_seconds", one.cancelled_time},
                       {"rejoined", one.rejoined},
                       {"lost", one.lost}});
  nlohmann::json document = {{"updates", accounting.updates},
                             {"gradients", accounting.gradients},
                             {"cancelled", accounting.cancelled},
                             {"pulls", accounting.pulls},
                             {"skipped", accounting.skipped},
                             {"seconds", accounting.seconds},
                             {"seconds_per_update", accounting.seconds_per_update()},
                             {"staleness",
                              {{"mean", accounting.mean_staleness()},
                               {"fresh", accounting.fresh()},
                               {"histogram", accounting.staleness}}},
                             {"idle_fraction", accounting.idle_fraction()},
                             {"servers_lost", accounting.servers_lost},
                             {"workers", workers}};
  if (accounting.batches)
    document["batches"] = {{"used", accounting.batches->used},
                           {"complete", accounting.batches->complete},
                           {"given_back", accounting.batches->given_back},
                           {"twice", accounting.batches->twice}};
  if (!accounting.losses.empty()) document["loss_curve"] = to_json(accounting.losses);
  return document;
}

nlohmann::json to_json(const std::vector<std::optional<ServerTime>>& servers) {
  nlohmann::json list = nlohmann::json::array();
  for (size_t server = 0; server < servers.size(); ++server)
    if (const auto& one = servers[server])
      list.push_back({{"server", server},
                      {"receive_seconds", one->receive},
                      {"apply_seconds", one->apply},
                      {"wait_seconds", one->wait},
                      {"pushed_bytes", one->pushed_bytes},
                      {"pulled_bytes", one->pulled_bytes},
                      {"table_bytes", one->table_bytes},
                      {"replicated_bytes", one->replicated_bytes}});
  return list;
}

nlohmann::json to_json(const std::vector<WorkerEnd>& ends) {
  TableCounts sum;
  nlohmann::json document, workers = nlohmann::json::array();
  for (size_t worker = 0; worker < ends.size(); ++worker) {
    if (ends[worker].has_tables == 0) continue;
    sum += ends[worker].tables;
    nlohmann::json own = {{"worker", worker}};
    for (const auto& [name, count] : kTableCounts) own[name] = ends[worker].tables.*count;
    workers.push_back(std::move(own));
  }
  for (const auto& [name, count] : kTableCounts) document[name] = sum.*count;
  document["workers"] = std::move(workers);
  return document;
}

}  // namespace yoke::ps
