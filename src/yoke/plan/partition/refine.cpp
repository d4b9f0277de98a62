#include <algorithm>
#include <queue>
#include <tuple>

#include "yoke/plan/at.h"
#include "yoke/plan/partition/state.h"

namespace yoke::plan {
namespace {

constexpr int kMostPasses = 24;

struct Move {
  int node = -1;
  int to = 0;
  double gain = 0;
};

// One pass: every node moves at most once.
class Pass {
 public:
  Pass(const PartitionProblem& problem, PartitionState& state)
      : problem_(problem), state_(state), locked_(problem.graph.weights.size()) {
    for (int node = 0; node < problem.graph.nodes(); ++node) push(node);
  }

  // Whether the state is better than before.
  bool run() {
    const double overload = state_.overload(), cut = state_.cut();
    double best_overload = overload, best_cut = cut;
    size_t best = 0;
    const size_t patience = 64 + locked_.size() / 8;
    while (done_.size() < locked_.size() && done_.size() - best < patience) {
      Move move = state_.overload() > 0 ? relieve() : pop();
      if (move.node < 0) break;
      carry_out(move);
      const std::pair now(state_.overload(), state_.cut());
      if (now >= std::pair(best_overload, best_cut)) continue;
      std::tie(best_overload, best_cut) = now;
      best = done_.size();
    }
    for (; done_.size() > best; done_.pop_back()) state_.move(done_.back().first, done_.back().second);
    // Sums in another order differ in their last digits, which is not progress.
    return best_overload < overload * (1 - 1e-9) || (best > 0 && best_cut < cut * (1 - 1e-9));
  }

 private:
  // Temporarily above the limit, so that two nodes can swap.
  bool fits(int node, int part) const {
    return state_.weight(part) + problem_.graph.weights[at(node)] <= problem_.limit + problem_.heaviest;
  }

  Move best_move(int node) {
    state_.gains(node, gains_);
    Move best;
    for (int to = 0; to < problem_.parts; ++to) {
      if (to == state_.part(node) || !fits(node, to)) continue;
      bool lighter =
          best.node >= 0 && gains_[at(to)] == best.gain && state_.weight(to) < state_.weight(best.to);
      if (best.node < 0 || gains_[at(to)] > best.gain || lighter) best = {node, to, gains_[at(to)]};
    }
    return best;
  }

  void push(int node) {
    Move move = best_move(node);
    if (move.node >= 0) queue_.push({move.gain, -node});
  }

  // The node with the largest gain; entries become stale when neighbours move, and are then recomputed.
  Move pop() {
    while (!queue_.empty()) {
      auto [gain, negative] = queue_.top();
      queue_.pop();
      if (locked_[at(-negative)]) continue;
      Move move = best_move(-negative);
      if (move.node < 0) continue;
      if (move.gain >= gain || queue_.empty() || move.gain >= queue_.top().first) return move;
      queue_.push({move.gain, negative});
    }
    return {};
  }

  // From the heaviest part into one that stays within the limit, or at least below the weight of this part.
  Move relieve() {
    int from = 0;
    for (int part = 1; part < problem_.parts; ++part)
      if (state_.weight(part) > state_.weight(from)) from = part;
    Move best;
    double best_over = 0;
    for (int node = 0; node < problem_.graph.nodes(); ++node) {
      const double weight = problem_.graph.weights[at(node)];
      if (locked_[at(node)] || state_.part(node) != from || weight <= 0) continue;
      state_.gains(node, gains_);
      for (int to = 0; to < problem_.parts; ++to) {
        if (to == from || state_.weight(to) + weight >= state_.weight(from)) continue;
        double over = std::max(0.0, state_.weight(to) + weight - problem_.limit) +
                      std::max(0.0, state_.weight(from) - weight - problem_.limit);
        bool better = over < best_over || (over == best_over && gains_[at(to)] > best.gain);
        if (best.node >= 0 && !better) continue;
        best = {node, to, gains_[at(to)]};
        best_over = over;
      }
    }
    return best;
  }

  void carry_out(const Move& move) {
    const int from = state_.part(move.node);
    done_.emplace_back(move.node, from);
    locked_[at(move.node)] = true;
    state_.move(move.node, move.to);
    for (int net : problem_.nets_of[at(move.node)]) {
      // Gains change only if a part has just lost or gained its first or second node of the net.
      if (state_.count(net, from) > 1 && state_.count(net, move.to) > 2) continue;
      for (int node : problem_.graph.nets[at(net)].nodes)
        if (!locked_[at(node)]) push(node);
    }
  }

  const PartitionProblem& problem_;
  PartitionState& state_;
  std::vector<bool> locked_;
  std::vector<std::pair<int, int>> done_;  // node, previous part
  std::priority_queue<std::pair<double, int>> queue_;
  std::vector<double> gains_;
};

}  // namespace

void refine(const PartitionProblem& problem, PartitionState& state) {
  for (int pass = 0; pass < kMostPasses && Pass(problem, state).run(); ++pass) {
  }
}

}  // namespace yoke::plan
