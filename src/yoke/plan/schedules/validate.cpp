// Replays lists of actions without a clock, and computes their memory requirements.
#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "yoke/base/error.h"
#include "yoke/plan/schedules/orders.h"

namespace yoke::plan {
namespace {

// Workers advance in turn as far as they can; if no worker can advance and not all are done, the lists
// deadlock.
struct Replay {
  // (op of the sender, virtual stage of the sender, micro-batch, receiver)
  using Message = std::tuple<ScheduleOp, int, int, int>;
  using Done = std::tuple<ScheduleOp, int, int>;  // (op, virtual stage, micro-batch)

  explicit Replay(const Schedule& s) : schedule(s), next(s.workers.size()), updates(s.workers.size()) {}

  const ScheduleRequest& request() const { return schedule.request; }

  [[noreturn]] void fail(size_t worker, const ScheduleAction& action, const std::string& text) const {
    throw ConfigError("{}: worker {} (stage {}), {} of micro-batch {}: {}", to_string(request().kind), worker,
                      schedule.workers[worker].stage, to_string(action.op), action.microbatch, text);
  }

  void compute(size_t worker, const ScheduleAction& action, int place) {
    bool forward = action.op == ScheduleOp::kForward;
    if (action.version > updates[worker])
      fail(worker, action, fmt::format("version {} does not exist yet.", action.version));
    if (!done.insert({action.op, place, action.microbatch}).second) fail(worker, action, "done twice.");
    if (forward) {
      bool fed = place == 0 ||
                 received.count({ScheduleOp::kSendActivation, place - 1, action.microbatch,
                                 static_cast<int>(worker)}) > 0 ||
                 local(worker, place - 1, action, ScheduleOp::kForward);
      if (!fed) fail(worker, action, "its input has not arrived.");
      versions[{place, action.microbatch}] = action.version;
      return;
    }
    auto used = versions.find({place, action.microbatch});
    if (used == versions.end()) fail(worker, action, "there was no forward.");
    if (used->second != action.version) fail(worker, action, "it does not use the weights of its forward.");
    if (action.op == ScheduleOp::kWeight) {
      if (done.count({ScheduleOp::kBackward, place, action.microbatch}) == 0)
        fail(worker, action, "there was no backward.");
      return;
    }
    bool fed = place + 1 == request().virtual_stages() ||
               received.count(
                   {ScheduleOp::kSendGradient, place + 1, action.microbatch, static_cast<int>(worker)}) > 0 ||
               local(worker, place + 1, action, ScheduleOp::kBackward);
    if (!fed) fail(worker, action, "its gradient has not arrived.");
  }

  // Adjacent virtual stages on the same worker need no message.
  bool local(size_t worker, int place, const ScheduleAction& action, ScheduleOp op) const {
    return place % request().stages == schedule.workers[worker].stage &&
           done.count({op, place, action.microbatch}) > 0;
  }

  // False: it must wait.
  bool step(size_t worker) {
    const ScheduleWorker& list = schedule.workers[worker];
    const ScheduleAction& action = list.actions[next[worker]];
    int place = action.chunk * request().stages + list.stage, self = static_cast<int>(worker);
    switch (action.op) {
      case ScheduleOp::kSendActivation:
      case ScheduleOp::kSendGradient:
        if (!sent.insert({action.op, place, action.microbatch, action.peer}).second)
          fail(worker, action, "sent twice.");
        break;
      case ScheduleOp::kReceiveActivation:
      case ScheduleOp::kReceiveGradient: {
        bool activation = action.op == ScheduleOp::kReceiveActivation;
        Message message{activation ? ScheduleOp::kSendActivation : ScheduleOp::kSendGradient,
                        activation ? place - 1 : place + 1, action.microbatch, self};
        if (sent.erase(message) == 0) return false;
        received.insert(message);
        break;
      }
      case ScheduleOp::kUpdate:
        if (action.version != ++updates[worker])
          fail(worker, action, fmt::format("it makes version {}.", updates[worker]));
        break;
      default:
        compute(worker, action, place);
    }
    ++next[worker];
    return true;
  }

  void run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (size_t worker = 0; worker < next.size(); ++worker) {
        while (next[worker] < schedule.workers[worker].actions.size() && step(worker)) moved = true;
      }
    }
    for (size_t worker = 0; worker < next.size(); ++worker) {
      const ScheduleWorker& list = schedule.workers[worker];
      if (next[worker] < list.actions.size()) fail(worker, list.actions[next[worker]], "deadlocks.");
    }
    if (!sent.empty()) throw ConfigError("{}: a message is never received.", to_string(request().kind));
    size_t each = request().kind == ScheduleKind::kZbH1 ? 3 : 2;
    size_t wanted =
        each * static_cast<size_t>(request().virtual_stages()) * static_cast<size_t>(request().total());
    if (done.size() != wanted)
      throw ConfigError("{}: {} passes instead of {}.", to_string(request().kind), done.size(), wanted);
  }

  const Schedule& schedule;
  std::vector<size_t> next;
  std::vector<int> updates;
  std::set<Message> sent;
  std::set<Message> received;
  std::set<Done> done;
  std::map<std::pair<int, int>, int> versions;
};

// The largest number of versions that are the newest or needed by a micro-batch in flight or still to come.
int distinct_versions(const std::vector<ScheduleAction>& actions) {
  std::map<int, size_t> last_use;  // version -> position in the list
  for (size_t i = 0; i < actions.size(); ++i) {
    if (actions[i].peer < 0 && actions[i].op != ScheduleOp::kUpdate) last_use[actions[i].version] = i;
  }
  int newest = 0, most = 1;
  for (size_t i = 0; i < actions.size(); ++i) {
    if (actions[i].op == ScheduleOp::kUpdate) newest = actions[i].version;
    int kept = 1;
    for (auto& [version, last] : last_use) {
      if (version >= newest) break;
      kept += last > i ? 1 : 0;
    }
    most = std::max(most, kept);
    while (!last_use.empty() && last_use.begin()->second < i) last_use.erase(last_use.begin());
  }
  return most;
}

}  // namespace

void validate(const Schedule& schedule) {
  Replay(schedule).run();
}

std::vector<Occupancy> occupancy(const Schedule& schedule) {
  const ScheduleKind kind = schedule.request.kind;
  ScheduleOp frees = kind == ScheduleKind::kZbH1 ? ScheduleOp::kWeight : ScheduleOp::kBackward;
  std::vector<Occupancy> all;
  for (const ScheduleWorker& worker : schedule.workers) {
    Occupancy own;
    int live = 0;
    for (const ScheduleAction& action : worker.actions) {
      live += (action.op == ScheduleOp::kForward ? 1 : 0) - (action.op == frees ? 1 : 0);
      own.peak_activations = std::max(own.peak_activations, live);
    }
    // Each micro-batch in flight may hold its own weights.
    if (kind == ScheduleKind::kPipedream) own.versions = own.peak_activations;
    if (kind == ScheduleKind::kPipedream && schedule.request.vertical_sync)
      own.versions = distinct_versions(worker.actions);
    if (kind == ScheduleKind::k2BW) own.versions = 2;
    all.push_back(own);
  }
  return all;
}

}  // namespace yoke::plan
