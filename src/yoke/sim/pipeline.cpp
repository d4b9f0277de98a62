#include "yoke/sim/pipeline.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "yoke/base/error.h"

namespace yoke::sim {
namespace {

using plan::Schedule;
using plan::ScheduleAction;
using plan::ScheduleOp;

constexpr double kNever = -1;

std::vector<double> for_stages(const std::vector<double>& values, int stages, const char* what) {
  if (values.size() != 1 && static_cast<int>(values.size()) != stages)
    throw ConfigError("{} {} times for {} stages: give one, or one for each.", values.size(), what, stages);
  for (double value : values) {
    if (!(value >= 0 && std::isfinite(value)))
      throw ConfigError("{} time {}: expected a number of at least 0.", what, value);
  }
  return values.size() == 1 ? std::vector<double>(static_cast<size_t>(stages), values[0]) : values;
}

// Announced events and their waiters. One entry per message or update.
class Board {
 public:
  explicit Board(size_t entries) : time_(entries, kNever), waits_(entries, -1) {}
  double at(size_t key) const { return time_[key]; }
  void wait(size_t key, int worker) { waits_[key] = worker; }
  // The waiting worker, or -1.
  int announce(size_t key, double time) {
    time_[key] = time;
    return std::exchange(waits_[key], -1);
  }

 private:
  std::vector<double> time_;
  std::vector<int> waits_;
};

class Simulator {
 public:
  Simulator(const Schedule& schedule, const PipelineCosts& costs)
      : schedule_(schedule),
        places_(static_cast<size_t>(schedule.request.virtual_stages())),
        total_(static_cast<size_t>(schedule.request.total())),
        forward_(for_stages(costs.forward, schedule.request.stages, "forward")),
        backward_(for_stages(costs.backward, schedule.request.stages, "backward")),
        transfer_(for_stages(costs.transfer, schedule.request.stages, "transfer")),
        sync_(for_stages(costs.sync, schedule.request.stages, "sync")),
        overlaps_(costs.sync_overlaps),
        pass_seconds_(costs.pass_seconds),
        messages_(2 * places_ * total_),
        workers_(schedule.workers.size()) {
    set_weight_times(costs);
    plan_updates();
    run_.busy.resize(workers_.size());
    size_t passes = 0;
    for (const plan::ScheduleWorker& worker : schedule.workers) passes += worker.actions.size();
    run_.spans.reserve(passes);
  }

  PipelineRun run() {
    std::vector<int> ready(workers_.size());
    std::iota(ready.begin(), ready.end(), 0);
    while (!ready.empty()) {
      int worker = ready.back();
      ready.pop_back();
      advance(worker, ready);
    }
    for (size_t i = 0; i < workers_.size(); ++i) {
      YOKE_CHECK(workers_[i].next == schedule_.workers[i].actions.size(),
                 "worker {} of the schedule deadlocks", i);
      run_.makespan = std::max(run_.makespan, workers_[i].clock);
    }
    std::stable_sort(run_.spans.begin(), run_.spans.end(),
                     [](const PipelineSpan& a, const PipelineSpan& b) { return a.worker < b.worker; });
    return std::move(run_);
  }

 private:
  struct Worker {
    size_t next = 0;
    double clock = 0;
    double link_free[2] = {0, 0};  // towards later stages, towards earlier ones
    int updates = 0;
  };
  // The n-th update of a stage.
  struct Update {
    int missing = 0;
    double ready = 0;
    double end = kNever;
    std::vector<int> waiting;
  };

  void set_weight_times(const PipelineCosts& costs) {
    if (schedule_.request.kind != plan::ScheduleKind::kZbH1) return;
    weight_ = costs.weight_backward;
    if (weight_.empty()) {
      for (double backward : backward_) weight_.push_back(backward / 2);
    }
    weight_ = for_stages(weight_, schedule_.request.stages, "weight-backward");
    for (size_t s = 0; s < weight_.size(); ++s) {
      if (weight_[s] > backward_[s])
        throw ConfigError("weight-backward {} of stage {} is longer than the whole backward, {}.", weight_[s],
                          s, backward_[s]);
      backward_[s] -= weight_[s];
    }
  }

  void plan_updates() {
    updates_.resize(static_cast<size_t>(schedule_.request.stages));
    for (const plan::ScheduleWorker& worker : schedule_.workers) {
      std::vector<Update>& of_stage = updates_[static_cast<size_t>(worker.stage)];
      size_t count = 0;
      for (const ScheduleAction& action : worker.actions) {
        if (action.op != ScheduleOp::kUpdate) continue;
        if (of_stage.size() <= count) of_stage.emplace_back();
        ++of_stage[count++].missing;
      }
    }
  }

  size_t message(bool gradient, int sender_place, int microbatch) const {
    return (static_cast<size_t>(gradient) * places_ + static_cast<size_t>(sender_place)) * total_ +
           static_cast<size_t>(microbatch);
  }

  double duration(const ScheduleAction& action, int index, int stage) const {
    if (pass_seconds_) return given_duration(action, index);
    const auto s = static_cast<size_t>(stage);
    double whole = action.op == ScheduleOp::kForward    ? forward_[s]
                   : action.op == ScheduleOp::kBackward ? backward_[s]
                                                        : weight_[s];
    return whole / schedule_.request.chunks;
  }

  double given_duration(const ScheduleAction& action, int index) const {
    double seconds = pass_seconds_(action, index);
    if (!(seconds >= 0 && std::isfinite(seconds)))
      throw ConfigError("{} {} of worker {} takes {} s: expected a number of at least 0.",
                        to_string(action.op), action.microbatch, index, seconds);
    return seconds;
  }

  void advance(int index, std::vector<int>& ready) {
    Worker& worker = workers_[static_cast<size_t>(index)];
    const std::vector<ScheduleAction>& actions = schedule_.workers[static_cast<size_t>(index)].actions;
    while (worker.next < actions.size() && step(index, worker, actions[worker.next], ready)) {
      ++worker.next;
      ++run_.events;
    }
  }

  // False: the worker waits, and the announcer of what it waits for puts it into `ready`.
  bool step(int index, Worker& worker, const ScheduleAction& action, std::vector<int>& ready) {
    const int stage = schedule_.workers[static_cast<size_t>(index)].stage;
    const int place = action.chunk * schedule_.request.stages + stage;
    switch (action.op) {
      case ScheduleOp::kSendActivation:
      case ScheduleOp::kSendGradient: {
        bool gradient = action.op == ScheduleOp::kSendGradient;
        // Chunks wrap around: from the last device to the first over a boundary like the others.
        int boundary = gradient ? (stage == 0 ? schedule_.request.stages - 1 : stage - 1) : stage;
        double& free = worker.link_free[gradient ? 1 : 0];
        free = std::max(worker.clock, free) + transfer_[static_cast<size_t>(boundary)];
        int waiting = messages_.announce(message(gradient, place, action.microbatch), free);
        if (waiting >= 0) ready.push_back(waiting);
        return true;
      }
      case ScheduleOp::kReceiveActivation:
      case ScheduleOp::kReceiveGradient: {
        bool gradient = action.op == ScheduleOp::kReceiveGradient;
        size_t key = message(gradient, gradient ? place + 1 : place - 1, action.microbatch);
        double arrival = messages_.at(key);
        if (arrival == kNever) {
          messages_.wait(key, index);
          return false;
        }
        worker.clock = std::max(worker.clock, arrival);
        return true;
      }
      case ScheduleOp::kUpdate:
        return update(index, worker, action, stage, ready);
      default:
        return pass(index, worker, action, stage);
    }
  }

  // Gradients are double buffered: a backward requires the update before the last one to be finished.
  bool pass(int index, Worker& worker, const ScheduleAction& action, int stage) {
    if (action.op == ScheduleOp::kBackward && overlaps_ && worker.updates > 1) {
      Update& last = updates_[static_cast<size_t>(stage)][static_cast<size_t>(worker.updates - 2)];
      if (last.end == kNever) {
        last.waiting.push_back(index);
        return false;
      }
      worker.clock = std::max(worker.clock, last.end);
    }
    double seconds = duration(action, index, stage), start = worker.clock;
    worker.clock += seconds;
    run_.busy[static_cast<size_t>(index)] += seconds;
    run_.spans.push_back(
        {index, action.op, action.microbatch, action.chunk, action.version, start, worker.clock});
    return true;
  }

  bool update(int index, Worker& worker, const ScheduleAction& action, int stage, std::vector<int>& ready) {
    std::vector<Update>& of_stage = updates_[static_cast<size_t>(stage)];
    const auto number = static_cast<size_t>(action.version - 1);
    Update& own = of_stage[number];
    if (worker.updates < action.version) {  // not yet announced by this worker
      ++worker.updates;
      own.ready = std::max(own.ready, worker.clock);
      if (--own.missing == 0) finish(of_stage, number, index, stage, ready);
    }
    if (overlaps_) return true;
    if (own.end == kNever) {
      own.waiting.push_back(index);
      return false;
    }
    worker.clock = std::max(worker.clock, own.end);
    return true;
  }

  // Replicas reach their updates in the same order, so the previous one has finished.
  void finish(std::vector<Update>& of_stage, size_t number, int index, int stage, std::vector<int>& ready) {
    Update& own = of_stage[number];
    double start = std::max(own.ready, number > 0 ? of_stage[number - 1].end : 0.0);
    own.end = start + sync_[static_cast<size_t>(stage)];
    run_.makespan = std::max(run_.makespan, own.end);
    if (own.end > start)
      run_.spans.push_back({index, ScheduleOp::kUpdate, 0, 0, static_cast<int>(number) + 1, start, own.end});
    for (int waiting : own.waiting) ready.push_back(waiting);
    own.waiting.clear();
  }

  const Schedule& schedule_;
  const size_t places_;
  const size_t total_;
  std::vector<double> forward_;
  std::vector<double> backward_;
  std::vector<double> transfer_;
  std::vector<double> sync_;
  const bool overlaps_;
  const std::function<double(const ScheduleAction&, int)> pass_seconds_;
  Board messages_;
  std::vector<Worker> workers_;
  std::vector<double> weight_;
  std::vector<std::vector<Update>> updates_;  // [stage][number]
  PipelineRun run_;
};

}  // namespace

double PipelineRun::bubble_fraction() const {
  double all = makespan * static_cast<double>(busy.size());
  return all > 0 ? 1 - std::accumulate(busy.begin(), busy.end(), 0.0) / all : 0;
}

PipelineRun simulate_pipeline(const Schedule& schedule, const PipelineCosts& costs) {
  return Simulator(schedule, costs).run();
}

}  // namespace yoke::sim
