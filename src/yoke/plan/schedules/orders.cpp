#include "yoke/plan/schedules/orders.h"

#include <algorithm>
#include <cstddef>

namespace yoke::plan {
namespace {

using Order = std::vector<Computation>;
using Micro = std::vector<int>;

// Forwards before the first backward, as in the released runtime of PipeDream; p - s - 1 on stage s without
// replicas.
int warm_up(const ScheduleRequest& request, int stage) {
  int devices_from_here = 0;
  for (int s = stage; s < request.stages; ++s) devices_from_here += request.replicas_of(s);
  return (devices_from_here - 1) / request.replicas_of(stage);
}

void naive(Order& order, const Micro& micro) {
  for (int m : micro) {
    order.push_back({ScheduleOp::kForward, m, 0});
    order.push_back({ScheduleOp::kBackward, m, 0});
  }
}

void gpipe(Order& order, const Micro& micro) {
  for (int m : micro) order.push_back({ScheduleOp::kForward, m, 0});
  for (auto m = micro.rbegin(); m != micro.rend(); ++m) order.push_back({ScheduleOp::kBackward, *m, 0});
}

// `lag`: by how many micro-batches weight parts trail the input parts. The input part unblocks the previous
// stage, so it comes first; trailing weight parts fill bubbles but keep activations alive. Negative: the
// backward is not split.
void one_forward_one_backward(Order& order, const Micro& micro, int warm, int lag) {
  size_t forward = std::min(static_cast<size_t>(warm), micro.size()), weight = 0;
  for (size_t i = 0; i < forward; ++i) order.push_back({ScheduleOp::kForward, micro[i], 0});
  for (size_t backward = 0; backward < micro.size(); ++backward) {
    if (forward < micro.size()) order.push_back({ScheduleOp::kForward, micro[forward++], 0});
    order.push_back({ScheduleOp::kBackward, micro[backward], 0});
    if (lag >= 0 && backward >= static_cast<size_t>(lag))
      order.push_back({ScheduleOp::kWeight, micro[weight++], 0});
  }
  for (; lag >= 0 && weight < micro.size(); ++weight)
    order.push_back({ScheduleOp::kWeight, micro[weight], 0});
}

// Groups of as many micro-batches as there are stages pass through one chunk after the other.
Order chunk_sequence(const ScheduleRequest& request, const Micro& micro, ScheduleOp op) {
  Order sequence;
  const auto group = static_cast<size_t>(request.stages);
  for (size_t begin = 0; begin < micro.size(); begin += group) {
    size_t end = std::min(micro.size(), begin + group);
    for (int step = 0; step < request.chunks; ++step) {
      int chunk = op == ScheduleOp::kForward ? step : request.chunks - 1 - step;
      for (size_t i = begin; i < end; ++i) sequence.push_back({op, micro[i], chunk});
    }
  }
  return sequence;
}

// Micro-batches left over after whole groups follow them, all forwards first: with the warm-up of whole
// groups, devices would wait for each other.
void interleaved(Order& order, const ScheduleRequest& request, const Micro& micro, int stage) {
  auto whole = static_cast<std::ptrdiff_t>(micro.size() - micro.size() % static_cast<size_t>(request.stages));
  Micro groups(micro.begin(), micro.begin() + whole), rest(micro.begin() + whole, micro.end());
  Order forwards = chunk_sequence(request, groups, ScheduleOp::kForward);
  Order backwards = chunk_sequence(request, groups, ScheduleOp::kBackward);
  int warm = 2 * (request.stages - stage - 1) + (request.chunks - 1) * request.stages;
  size_t forward = std::min(static_cast<size_t>(warm), forwards.size());
  order.insert(order.end(), forwards.begin(), forwards.begin() + static_cast<std::ptrdiff_t>(forward));
  for (const Computation& backward : backwards) {
    if (forward < forwards.size()) order.push_back(forwards[forward++]);
    order.push_back(backward);
  }
  for (ScheduleOp op : {ScheduleOp::kForward, ScheduleOp::kBackward}) {
    Order last = chunk_sequence(request, rest, op);
    order.insert(order.end(), last.begin(), last.end());
  }
}

void append(Order& order, const ScheduleRequest& request, const Micro& micro, int stage) {
  switch (request.kind) {
    case ScheduleKind::kNaive:
      return naive(order, micro);
    case ScheduleKind::kGpipe:
      return gpipe(order, micro);
    case ScheduleKind::kInterleaved:
      return interleaved(order, request, micro, stage);
    case ScheduleKind::kZbH1:
      return one_forward_one_backward(order, micro, warm_up(request, stage), stage);
    case ScheduleKind::k1F1B:
    case ScheduleKind::kPipedream:
    case ScheduleKind::k2BW:
      return one_forward_one_backward(order, micro, warm_up(request, stage), -1);
  }
}

}  // namespace

bool flushes(ScheduleKind kind) {
  return kind != ScheduleKind::kPipedream && kind != ScheduleKind::k2BW;
}

std::vector<Computation> compute_order(const ScheduleRequest& request, int stage, int replica) {
  Order order;
  Micro own;
  for (int batch = 0; batch < request.minibatches; ++batch) {
    if (flushes(request.kind)) own.clear();
    for (int i = 0; i < request.microbatches; ++i) {
      int micro = batch * request.microbatches + i;
      int turn = request.kind == ScheduleKind::kPipedream ? micro : i;
      if (turn % request.replicas_of(stage) == replica) own.push_back(micro);
    }
    if (flushes(request.kind)) append(order, request, own, stage);
  }
  if (!flushes(request.kind)) append(order, request, own, stage);
  return order;
}

}  // namespace yoke::plan
