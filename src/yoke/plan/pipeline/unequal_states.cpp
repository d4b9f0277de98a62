#include "yoke/plan/pipeline/unequal_states.h"
#include "yoke/plan/at.h"

#include <algorithm>
#include <limits>
#include <map>
#include <memory>
#include <numeric>

namespace yoke::plan {
namespace {

constexpr double kMostSteps = 30'000;  // of the exact search
constexpr size_t kPermutedKinds = 4;   // up to this many kinds all orders are tried

struct DeviceClass {
  PlanDevice device;
  std::vector<int> members;
};

std::vector<DeviceClass> kinds_of(const PlanOptions& options) {
  std::map<std::pair<double, double>, std::vector<int>> members;
  for (size_t i = 0; i < options.devices.size(); ++i) {
    const PlanDevice& device = options.devices[i];
    members[{device.speed, std::min(device.memory, options.memory)}].push_back(static_cast<int>(i));
  }
  std::vector<DeviceClass> kinds;
  for (auto& [key, list] : members) kinds.push_back({{key.first, key.second}, list});
  return kinds;
}

class StateMaker {
 public:
  int group(const DeviceGroup& group) {
    auto [entry, fresh] = numbers_.try_emplace(group, static_cast<int>(states.groups.size()));
    if (fresh) states.groups.push_back(group);
    return entry->second;
  }
  void resize(size_t count) {
    states.steps.resize(count);
    states.taken.resize(count);
    states.all = static_cast<int>(count) - 1;
  }

  DeviceStates states;

 private:
  std::map<DeviceGroup, int> numbers_;
};

// Every multiset of kinds, numbered in mixed radix so that supersets have larger numbers.
class EveryPortion {
 public:
  explicit EveryPortion(const std::vector<DeviceClass>& kinds) : kinds_(kinds) {
    int count = 1;
    for (const DeviceClass& kind : kinds) {
      place_.push_back(count);
      count *= static_cast<int>(kind.members.size()) + 1;
    }
    maker_.resize(at(count));
    used_.resize(kinds.size());
    more_.resize(kinds.size());
    for (int state = 0; state < count; ++state) {
      for (size_t k = 0; k < kinds.size(); ++k)
        used_[k] = state / place_[k] % (static_cast<int>(kinds[k].members.size()) + 1);
      maker_.states.taken[at(state)] = std::accumulate(used_.begin(), used_.end(), 0);
      choose(state, state, 0);
    }
  }

  static double steps(const std::vector<DeviceClass>& kinds) {
    double count = 1;
    for (const DeviceClass& kind : kinds) {
      auto members = static_cast<double>(kind.members.size());
      count *= (members + 1) * (members + 2) / 2;
    }
    return count;
  }

  DeviceStates take_states() { return std::move(maker_.states); }

  // The devices between two states: the next ones of each kind.
  std::vector<int> devices(int from, int to) const {
    std::vector<int> list;
    for (size_t k = 0; k < kinds_.size(); ++k) {
      const auto& members = kinds_[k].members;
      int radix = static_cast<int>(members.size()) + 1;
      for (int i = from / place_[k] % radix; i < to / place_[k] % radix; ++i) list.push_back(members[at(i)]);
    }
    std::sort(list.begin(), list.end());
    return list;
  }

 private:
  void choose(int from, int to, size_t kind) {
    if (kind == kinds_.size()) {
      if (to != from) maker_.states.steps[at(from)].push_back({to, maker_.group(group())});
      return;
    }
    for (int more = 0; used_[kind] + more <= static_cast<int>(kinds_[kind].members.size()); ++more) {
      more_[kind] = more;
      choose(from, to + more * place_[kind], kind + 1);
    }
    more_[kind] = 0;
  }

  DeviceGroup group() const {
    DeviceGroup group{0, std::numeric_limits<double>::infinity(), std::numeric_limits<double>::infinity()};
    for (size_t k = 0; k < kinds_.size(); ++k) {
      if (more_[k] == 0) continue;
      group.replicas += more_[k];
      group.slowest = std::min(group.slowest, kinds_[k].device.speed);
      group.least_memory = std::min(group.least_memory, kinds_[k].device.memory);
    }
    return group;
  }

  const std::vector<DeviceClass> kinds_;
  std::vector<int> place_;
  std::vector<int> used_;
  std::vector<int> more_;
  StateMaker maker_;
};

// Stages take contiguous devices of `order`, the last stage from its start.
DeviceStates in_order(const std::vector<int>& order, const PlanOptions& options) {
  StateMaker maker;
  maker.resize(order.size() + 1);
  for (size_t from = 0; from < order.size(); ++from) {
    maker.states.taken[from] = static_cast<int>(from);
    DeviceGroup group{0, std::numeric_limits<double>::infinity(), std::numeric_limits<double>::infinity()};
    for (size_t to = from + 1; to <= order.size(); ++to) {
      const PlanDevice& device = options.devices[at(order[to - 1])];
      ++group.replicas;
      group.slowest = std::min(group.slowest, device.speed);
      group.least_memory = std::min({group.least_memory, device.memory, options.memory});
      maker.states.steps[from].push_back({static_cast<int>(to), maker.group(group)});
    }
  }
  maker.states.taken.back() = static_cast<int>(order.size());
  return std::move(maker.states);
}

std::vector<std::vector<int>> orders_of(const std::vector<DeviceClass>& kinds) {
  std::vector<std::vector<int>> orders;
  auto add = [&](const std::vector<size_t>& sequence) {
    std::vector<int>& order = orders.emplace_back();
    for (size_t k : sequence) order.insert(order.end(), kinds[k].members.begin(), kinds[k].members.end());
  };
  std::vector<size_t> sequence(kinds.size());
  std::iota(sequence.begin(), sequence.end(), 0);  // by speed, then memory
  if (kinds.size() <= kPermutedKinds) {
    do add(sequence);
    while (std::next_permutation(sequence.begin(), sequence.end()));
    return orders;
  }
  auto both_ways = [&] {
    add(sequence);
    std::reverse(sequence.begin(), sequence.end());
    add(sequence);
  };
  both_ways();
  std::stable_sort(sequence.begin(), sequence.end(),
                   [&](size_t a, size_t b) { return kinds[a].device.memory < kinds[b].device.memory; });
  both_ways();
  return orders;
}

void keep_single_devices(DeviceStates& states) {
  for (auto& steps : states.steps)
    std::erase_if(steps, [&](const auto& step) { return states.groups[at(step.group)].replicas > 1; });
}

}  // namespace

DeviceChoices device_choices(const PlanOptions& options) {
  std::vector<DeviceClass> kinds = kinds_of(options);
  DeviceChoices choices;
  choices.exact = EveryPortion::steps(kinds) <= kMostSteps;
  if (choices.exact) {
    auto every = std::make_shared<EveryPortion>(kinds);
    choices.ways.push_back(
        {every->take_states(), [every](int from, int to) { return every->devices(from, to); }});
  } else {
    for (const std::vector<int>& order : orders_of(kinds)) {
      auto devices = [order](int from, int to) {
        std::vector<int> list(order.begin() + from, order.begin() + to);
        std::sort(list.begin(), list.end());
        return list;
      };
      choices.ways.push_back({in_order(order, options), devices});
    }
  }
  if (options.straight)
    for (DevicePortions& way : choices.ways) keep_single_devices(way.states);
  return choices;
}

}  // namespace yoke::plan
