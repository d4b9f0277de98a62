// The states of the released optimizer, as sets of layers.
#include <algorithm>
#include <deque>
#include <map>
#include <numeric>

#include "yoke/base/error.h"
#include "yoke/plan/pipeline/cuts.h"

namespace yoke::plan {
namespace {

using Set = std::vector<uint64_t>;  // of layers, one bit each

bool has(const Set& set, int layer) {
  return ((set[static_cast<size_t>(layer) / 64] >> (layer % 64)) & 1) != 0;
}
void add(Set& set, int layer) {
  set[static_cast<size_t>(layer) / 64] |= uint64_t{1} << (layer % 64);
}
void add_all(Set& set, const Set& other) {
  for (size_t i = 0; i < set.size(); ++i) set[i] |= other[i];
}
bool contains(const Set& larger, const Set& smaller) {
  for (size_t i = 0; i < larger.size(); ++i) {
    if ((smaller[i] & ~larger[i]) != 0) return false;
  }
  return true;
}

class States {
 public:
  explicit States(const Profile& profile)
      : profile_(profile), count_(static_cast<int>(profile.layers.size())) {
    size_t size = profile.layers.size();
    next_.resize(size);
    if (profile.is_chain()) {
      for (int i = 0; i + 1 < count_; ++i) next_[static_cast<size_t>(i)] = {i + 1};
    }
    for (const Edge& edge : profile.edges) next_[static_cast<size_t>(edge.from)].push_back(edge.to);
    with_ancestors_.assign(size, Set((size + 63) / 64));
    for (int i = 0; i < count_; ++i) {  // edges lead to later layers: predecessors are complete
      add(with_ancestors_[static_cast<size_t>(i)], i);
      for (int next : next_[static_cast<size_t>(i)])
        add_all(with_ancestors_[static_cast<size_t>(next)], with_ancestors_[static_cast<size_t>(i)]);
    }
  }

  void grow(int most) {
    std::deque<Set> queue = {with_ancestors_[static_cast<size_t>(profile_.first_source)]};
    found_.emplace(queue.front(), true);
    while (!queue.empty()) {
      Set set = std::move(queue.front());
      queue.pop_front();
      for (int layer = 0; layer < count_; ++layer) {
        if (!has(set, layer)) continue;
        for (int next : next_[static_cast<size_t>(layer)]) {
          if (has(set, next)) continue;
          Set larger = set;
          add_all(larger, with_ancestors_[static_cast<size_t>(next)]);
          if (!found_.emplace(larger, true).second) continue;
          if (found_.size() > static_cast<size_t>(most))
            throw ConfigError("--states antichain: more than {} states. Use the prefixes (--states prefix).",
                              most);
          queue.push_back(std::move(larger));
        }
      }
    }
  }

  // Sorted by completed time, then size: a set comes before its supersets.
  std::vector<Set> sorted() const {
    std::vector<Set> list;
    for (auto& [set, unused] : found_) list.push_back(set);
    auto key = [&](const Set& set) {
      double seconds = 0;
      int layers = 0;
      for (int i = 0; i < count_; ++i) {
        if (!has(set, i)) continue;
        seconds += profile_.layers[static_cast<size_t>(i)].seconds();
        ++layers;
      }
      return std::pair(seconds, layers);
    };
    std::vector<std::pair<std::pair<double, int>, size_t>> order;
    for (size_t i = 0; i < list.size(); ++i) order.push_back({key(list[i]), i});
    std::sort(order.begin(), order.end());
    std::vector<Set> result;
    for (auto& [unused, index] : order) result.push_back(std::move(list[index]));
    return result;
  }

  // The outputs of the maximal layers x, and of every ancestor of an x that feeds a layer that is neither x
  // nor one of its ancestors, even if that layer is completed.
  double crossing(const Set& set) const {
    Set counted(set.size());
    for (int x = 0; x < count_; ++x) {
      if (!has(set, x) || !is_maximal(set, x)) continue;
      add(counted, x);
      const Set& known = with_ancestors_[static_cast<size_t>(x)];
      for (int p = 0; p < x; ++p) {
        if (!has(known, p)) continue;
        for (int next : next_[static_cast<size_t>(p)]) {
          if (!has(known, next)) add(counted, p);
        }
      }
    }
    double bytes = 0;
    for (int i = 0; i < count_; ++i) {
      if (has(counted, i)) bytes += profile_.layers[static_cast<size_t>(i)].activation_bytes;
    }
    return bytes;
  }

 private:
  bool is_maximal(const Set& set, int layer) const {
    const std::vector<int>& next = next_[static_cast<size_t>(layer)];
    return std::none_of(next.begin(), next.end(), [&](int other) { return has(set, other); });
  }

  const Profile& profile_;
  int count_;
  std::vector<std::vector<int>> next_;
  std::vector<Set> with_ancestors_;
  std::map<Set, bool> found_;
};

std::vector<std::vector<uint64_t>> inclusions(const std::vector<Set>& sets) {
  size_t count = sets.size() + 1;
  std::vector<std::vector<uint64_t>> rows(count, std::vector<uint64_t>((count + 63) / 64));
  for (size_t a = 0; a < count; ++a) {
    for (size_t b = a + 1; b < count; ++b) {
      if (a == 0 || contains(sets[b - 1], sets[a - 1])) rows[a][b / 64] |= uint64_t{1} << (b % 64);
    }
  }
  return rows;
}

}  // namespace

Cuts antichain_cuts(const Profile& profile, int most) {
  States states(profile);
  states.grow(most);
  std::vector<Set> sets = states.sorted();
  Cuts cuts;
  for (auto* sums : {&cuts.forward, &cuts.seconds, &cuts.weights, &cuts.activations, &cuts.crossing})
    sums->assign(sets.size() + 1, 0.0);
  cuts.layers.resize(sets.size() + 1);
  for (size_t b = 1; b <= sets.size(); ++b) {
    for (int i = 0; i < static_cast<int>(profile.layers.size()); ++i) {
      if (!has(sets[b - 1], i)) continue;
      const Layer& layer = profile.layers[static_cast<size_t>(i)];
      cuts.forward[b] += layer.forward;
      cuts.seconds[b] += layer.seconds();
      cuts.weights[b] += layer.parameter_bytes;
      cuts.activations[b] += layer.activation_bytes;
      cuts.layers[b].push_back(i);
    }
    if (b < sets.size()) cuts.crossing[b] = states.crossing(sets[b - 1]);
  }
  for (const Layer& layer : profile.layers) cuts.names.push_back(layer.name);
  cuts.part_of = inclusions(sets);
  if (cuts.layers.back().size() != profile.layers.size())
    throw ConfigError(
        "--states antichain: {} of {} layers cannot be reached from the first source; use --states prefix.",
        profile.layers.size() - cuts.layers.back().size(), profile.layers.size());
  return cuts;
}

}  // namespace yoke::plan
