// Adds messages, weight versions and updates to the compute order of each worker.
//
// A receive is placed directly before the computation that needs it and a send directly after the one that
// produces it. Sends are asynchronous, so the lists cannot deadlock as long as the compute orders are
// consistent (validate()).
#include <algorithm>
#include <map>

#include "yoke/base/error.h"
#include "yoke/plan/schedules/orders.h"

namespace yoke::plan {
namespace {

constexpr int64_t kMostActions = 200'000'000;

void check(const ScheduleRequest& request) {
  const char* name = to_string(request.kind);
  if (request.stages < 1 || request.microbatches < 1 || request.minibatches < 1 || request.chunks < 1)
    throw ConfigError("{}: {} stages, {} micro-batches, {} minibatches, {} chunks: each must be at least 1.",
                      name, request.stages, request.microbatches, request.minibatches, request.chunks);
  if (request.chunks > 1 && request.kind != ScheduleKind::kInterleaved)
    throw ConfigError("{}: {} chunks: only interleaved supports several chunks per device.", name,
                      request.chunks);
  double actions = 6.0 * request.stages * request.chunks * request.microbatches * request.minibatches;
  if (actions > static_cast<double>(kMostActions))
    throw ConfigError("{}: about {:.0f} actions; at most {} are accepted.", name, actions, kMostActions);
  if (request.vertical_sync && request.kind != ScheduleKind::kPipedream)
    throw ConfigError("{}: vertical sync requires pipedream.", name);
  if (request.replicas.empty()) return;
  if (static_cast<int>(request.replicas.size()) != request.stages)
    throw ConfigError("{}: {} numbers of replicas for {} stages.", name, request.replicas.size(),
                      request.stages);
  for (int r : request.replicas) {
    if (r < 1) throw ConfigError("{}: {} replicas: expected at least 1.", name, r);
    if (r > 1 && (request.kind == ScheduleKind::kInterleaved || request.kind == ScheduleKind::kZbH1))
      throw ConfigError("{}: replicated stages require naive, gpipe, 1f1b, pipedream or 2bw.", name);
    if (r > (request.kind == ScheduleKind::kPipedream ? request.total() : request.microbatches))
      throw ConfigError("{}: {} replicas and {} micro-batches: some replicas would be idle.", name, r,
                        request.microbatches);
  }
}

class Maker {
 public:
  explicit Maker(const ScheduleRequest& request) : request_(request) {
    for (int stage = 0, worker = 0; stage < request.stages; ++stage) {
      first_worker_.push_back(worker);
      worker += request.replicas_of(stage);
    }
  }

  ScheduleWorker worker(int stage, int replica) {
    ScheduleWorker worker{stage, replica, {}};
    std::vector<Computation> order = compute_order(request_, stage, replica);
    std::vector<char> ends = ends_of_updates(order);
    int updates = 0;
    for (size_t i = 0; i < order.size(); ++i) {
      add(worker, order[i], updates);
      if (ends[i] != 0)
        worker.actions.push_back({ScheduleOp::kUpdate, order[i].microbatch, 0, ++updates, -1});
    }
    return worker;
  }

 private:
  int turn(int micro) const {
    return request_.kind == ScheduleKind::kPipedream ? micro : micro % request_.microbatches;
  }
  int worker_of(int virtual_stage, int micro) const {
    int stage = virtual_stage % request_.stages;
    return first_worker_[static_cast<size_t>(stage)] + turn(micro) % request_.replicas_of(stage);
  }

  // Positions at which the gradient of a minibatch (pipedream: of a micro-batch) is complete.
  std::vector<char> ends_of_updates(const std::vector<Computation>& order) const {
    ScheduleOp last = request_.kind == ScheduleKind::kZbH1 ? ScheduleOp::kWeight : ScheduleOp::kBackward;
    std::vector<char> ends(order.size());
    std::map<int, size_t> of_batch;
    for (size_t i = 0; i < order.size(); ++i) {
      if (order[i].op != last) continue;
      bool each = request_.kind == ScheduleKind::kPipedream;
      of_batch[each ? order[i].microbatch : order[i].microbatch / request_.microbatches] = i;
    }
    for (auto& [batch, place] : of_batch) ends[place] = 1;
    return ends;
  }

  int version_for(const ScheduleWorker& worker, int micro, int updates) {
    int batch = micro / request_.microbatches;
    if (request_.kind == ScheduleKind::k2BW) {
      if (batch - 1 > updates)
        throw ConfigError(
            "2bw: {} micro-batches are too few for {} stages: a weight version would be needed before it "
            "exists. Use at least one micro-batch per device.",
            request_.microbatches, request_.stages);
      return std::max(0, batch - 1);
    }
    if (!request_.vertical_sync) return updates;
    if (worker.stage == 0) input_version_[micro] = updates;
    return input_version_.at(micro);
  }

  void add(ScheduleWorker& worker, const Computation& computation, int updates) {
    const int micro = computation.microbatch, chunk = computation.chunk;
    const int place = chunk * request_.stages + worker.stage, end = request_.virtual_stages();
    const int self = worker_of(place, micro);
    auto exchange = [&](ScheduleOp op, int other) {
      if (other < 0 || other >= end || worker_of(other, micro) == self) return;
      worker.actions.push_back({op, micro, chunk, 0, worker_of(other, micro)});
    };
    if (computation.op == ScheduleOp::kForward) {
      versions_[{place, micro}] = version_for(worker, micro, updates);
      exchange(ScheduleOp::kReceiveActivation, place - 1);
    }
    if (computation.op == ScheduleOp::kBackward) exchange(ScheduleOp::kReceiveGradient, place + 1);
    worker.actions.push_back({computation.op, micro, chunk, versions_.at({place, micro}), -1});
    if (computation.op == ScheduleOp::kForward) exchange(ScheduleOp::kSendActivation, place + 1);
    if (computation.op == ScheduleOp::kBackward) exchange(ScheduleOp::kSendGradient, place - 1);
  }

  const ScheduleRequest& request_;
  std::vector<int> first_worker_;
  // Of each virtual stage and micro-batch, fixed at its forward
  std::map<std::pair<int, int>, int> versions_;
  std::map<int, int> input_version_;  // of each micro-batch at the first stage, for vertical sync
};

}  // namespace

Schedule make_schedule(const ScheduleRequest& request) {
  check(request);
  Schedule schedule{request, {}};
  Maker maker(request);
  for (int stage = 0; stage < request.stages; ++stage) {
    for (int replica = 0; replica < request.replicas_of(stage); ++replica)
      schedule.workers.push_back(maker.worker(stage, replica));
  }
  return schedule;
}

}  // namespace yoke::plan
