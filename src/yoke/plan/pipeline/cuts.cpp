#include "yoke/plan/pipeline/cuts.h"

#include <algorithm>
#include <numeric>

namespace yoke::plan {
namespace {

// The last layer that reads each output; the layer itself if there is none.
std::vector<size_t> last_readers(const Profile& profile) {
  std::vector<size_t> last(profile.layers.size());
  for (size_t i = 0; i < last.size(); ++i)
    last[i] = profile.is_chain() ? std::min(i + 1, last.size() - 1) : i;
  for (const Edge& edge : profile.edges) {
    size_t& reader = last[static_cast<size_t>(edge.from)];
    reader = std::max(reader, static_cast<size_t>(edge.to));
  }
  return last;
}

}  // namespace

std::vector<int> Cuts::layers_of(int a, int b) const {
  std::vector<int> list;
  if (layers.empty()) {
    list.resize(static_cast<size_t>(b - a));
    std::iota(list.begin(), list.end(), a);
    return list;
  }
  const std::vector<int>& before = layers[static_cast<size_t>(a)];
  const std::vector<int>& after = layers[static_cast<size_t>(b)];
  std::set_difference(after.begin(), after.end(), before.begin(), before.end(), std::back_inserter(list));
  return list;
}

Cuts prefix_cuts(const Profile& profile) {
  size_t count = profile.layers.size();
  Cuts cuts;
  for (auto* sums : {&cuts.forward, &cuts.seconds, &cuts.weights, &cuts.activations, &cuts.crossing})
    sums->assign(count + 1, 0.0);
  for (size_t i = 0; i < count; ++i) {
    const Layer& layer = profile.layers[i];
    cuts.forward[i + 1] = cuts.forward[i] + layer.forward;
    cuts.seconds[i + 1] = cuts.seconds[i] + layer.seconds();
    cuts.weights[i + 1] = cuts.weights[i] + layer.parameter_bytes;
    cuts.activations[i + 1] = cuts.activations[i] + layer.activation_bytes;
    cuts.names.push_back(layer.name);
  }
  // Sums of what starts and ends at each boundary: byte counts are integers, so they cancel exactly.
  std::vector<size_t> last = last_readers(profile);
  std::vector<double> ends(count + 1);
  double live = 0;
  for (size_t i = 0; i < count; ++i) {
    live -= ends[i];  // last read by layer i: does not cross the boundary behind it
    if (last[i] > i) {
      live += profile.layers[i].activation_bytes;
      ends[last[i]] += profile.layers[i].activation_bytes;
    }
    if (i + 1 < count) cuts.crossing[i + 1] = std::max(0.0, live);
  }
  return cuts;
}

}  // namespace yoke::plan
