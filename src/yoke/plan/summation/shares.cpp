#include "yoke/plan/summation/shares.h"

#include <algorithm>
#include <numeric>

#include "yoke/base/error.h"

namespace yoke::plan {
namespace {

// Waves of an array that would fit into one: sums of all but the last return while more is sent.
constexpr int64_t kWaves = 64;
// Smaller parts would cost more in messages than they gain.
constexpr int64_t kSmallestPart = 1 << 14;  // elements

void check(int workers, int spares) {
  if (workers < 1) throw ConfigError("summation for {} workers: there must be at least one.", workers);
  if (spares < 0 || spares > workers)
    throw ConfigError(
        "{} spare machines for {} worker{}: more than one for each worker have nothing to do. Accepted: "
        "0..{}.",
        spares, workers, workers == 1 ? "" : "s", workers);
}

int64_t wave_count(int64_t count, int64_t heaviest, int64_t total, int64_t largest) {
  const int64_t biggest_part = (count * heaviest + total - 1) / total;
  const int64_t needed = (biggest_part + largest - 1) / largest;
  const int64_t wanted = std::min(kWaves, biggest_part / kSmallestPart);
  return std::max<int64_t>({1, needed, wanted});
}

}  // namespace

std::vector<int64_t> summation_weights(int workers, int spares) {
  check(workers, spares);
  // One worker has nothing to add up with; the formula would leave it without a share.
  const int64_t worker = workers == 1 ? 1 : workers - spares;
  std::vector<int64_t> weights(static_cast<size_t>(workers), worker);
  weights.resize(static_cast<size_t>(workers + spares), 2 * (int64_t{workers} - 1));
  return weights;
}

SummationShares summation_shares(int workers, int spares) {
  const std::vector<int64_t> weights = summation_weights(workers, spares);
  const auto total = static_cast<double>(std::accumulate(weights.begin(), weights.end(), int64_t{0}));
  SummationShares shares;
  shares.worker = static_cast<double>(weights.front()) / total;
  shares.spare = spares > 0 ? static_cast<double>(weights.back()) / total : 0;
  // A worker sends every part but its own, and its sums to the other workers.
  shares.load = workers == 1 ? 0 : 1 + (workers - 2) * shares.worker;
  return shares;
}

double summation_gain(int workers, int spares) {
  const double with = summation_shares(workers, spares).load;
  return with > 0 ? summation_shares(workers, 0).load / with : 1;
}

std::vector<SummationWave> summation_waves(int64_t count, int workers, int spares, int64_t largest) {
  if (count < 0 || largest < 1)
    throw ConfigError("summation of {} elements in parts of at most {}.", count, largest);
  const std::vector<int64_t> weights = summation_weights(workers, spares);
  const int64_t total = std::accumulate(weights.begin(), weights.end(), int64_t{0});
  const int64_t heaviest = *std::max_element(weights.begin(), weights.end());
  const auto waves = static_cast<int>(wave_count(count, heaviest, total, largest));
  std::vector<SummationWave> out;
  for (int wave = 0; wave < waves; ++wave) {
    const Range stretch = part_of(count, wave, waves);
    SummationWave parts;
    int64_t weight = 0, begin = 0;
    for (int64_t own : weights) {
      weight += own;
      const int64_t end = stretch.count * weight / total;
      parts.push_back({stretch.begin + begin, end - begin});
      begin = end;
    }
    out.push_back(std::move(parts));
  }
  return out;
}

}  // namespace yoke::plan
