#include "yoke/collab/balance.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "yoke/base/error.h"

namespace yoke::collab {
namespace {

// With unknown ones replaced by the mean of the known links that sum.
std::vector<double> completed(const std::vector<Bandwidth>& bandwidths) {
  double sum = 0;
  int known = 0;
  for (const Bandwidth& one : bandwidths) {
    if (one && (!std::isfinite(*one) || *one < 0))
      throw ConfigError("bandwidth {}: expected a finite number of at least 0.", *one);
    if (!one || *one == 0) continue;
    sum += *one;
    ++known;
  }
  std::vector<double> all;
  for (const Bandwidth& one : bandwidths) all.push_back(one.value_or(known > 0 ? sum / known : 1.0));
  return all;
}

double load(size_t peers, double share) {
  return peers == 1 ? 0 : 1 + (static_cast<double>(peers) - 2) * share;
}

double largest_time(const std::vector<double>& bandwidths, const std::vector<double>& shares) {
  double time = 0;
  for (size_t i = 0; i < bandwidths.size(); ++i)
    if (bandwidths[i] > 0) time = std::max(time, load(bandwidths.size(), shares[i]) / bandwidths[i]);
  return time;
}

// Shares that fill every link up to `time`; their sum grows with it.
std::vector<double> filled(const std::vector<double>& bandwidths, double time) {
  std::vector<double> shares;
  const double others = static_cast<double>(bandwidths.size()) - 2;
  for (double bandwidth : bandwidths)
    shares.push_back(bandwidth > 0 ? std::clamp((time * bandwidth - 1) / others, 0.0, 1.0) : 0.0);
  return shares;
}

// Of two peers each moves one vector each way, whatever the shares: in proportion to bandwidth.
std::vector<double> proportional(const std::vector<double>& bandwidths) {
  const double sum = std::accumulate(bandwidths.begin(), bandwidths.end(), 0.0);
  std::vector<double> shares;
  for (double bandwidth : bandwidths) shares.push_back(bandwidth / sum);
  return shares;
}

void normalise(std::vector<double>& shares) {
  const double sum = std::accumulate(shares.begin(), shares.end(), 0.0);
  for (double& share : shares) share /= sum;
}

}  // namespace

Balance balance_load(const std::vector<Bandwidth>& bandwidths) {
  const std::vector<double> known = completed(bandwidths);
  const double sum = std::accumulate(known.begin(), known.end(), 0.0);
  if (sum <= 0)
    throw ConfigError(
        "none of {} peers accepts connections: at least one must sum. Start one without "
        "--client-only.",
        known.size());
  Balance result;
  if (known.size() <= 2) {
    result.shares = proportional(known);
  } else {
    // Exact if no share is clipped, otherwise a bound; links too slow to sum anything only send.
    const auto active = static_cast<double>(
        std::count_if(known.begin(), known.end(), [](double bandwidth) { return bandwidth > 0; }));
    double low = 0, high = (static_cast<double>(known.size()) - 2 + active) / sum;
    auto filled_sum = [&](double time) {
      std::vector<double> shares = filled(known, time);
      return std::accumulate(shares.begin(), shares.end(), 0.0);
    };
    while (filled_sum(high) < 1 - 1e-12) high *= 2;
    for (int i = 0; i < 100 && high - low > 1e-15 * high; ++i) {
      const double middle = (low + high) / 2;
      (filled_sum(middle) < 1 ? low : high) = middle;
    }
    result.shares = filled(known, high);
    normalise(result.shares);
  }
  result.time = largest_time(known, result.shares);
  return result;
}

double averaging_time(const std::vector<Bandwidth>& bandwidths, const std::vector<double>& shares) {
  YOKE_CHECK(bandwidths.size() == shares.size(), "{} bandwidths, {} shares", bandwidths.size(),
             shares.size());
  return largest_time(completed(bandwidths), shares);
}

std::vector<int64_t> integer_parts(int64_t count, std::vector<double> shares, int64_t least) {
  YOKE_CHECK(!shares.empty(), "no shares");
  const auto largest = static_cast<size_t>(std::max_element(shares.begin(), shares.end()) - shares.begin());
  for (size_t i = 0; i < shares.size(); ++i)
    if (i != largest && shares[i] * static_cast<double>(count) < static_cast<double>(least)) shares[i] = 0;
  normalise(shares);
  std::vector<int64_t> parts;
  for (double share : shares) parts.push_back(static_cast<int64_t>(share * static_cast<double>(count)));
  int64_t left = count - std::accumulate(parts.begin(), parts.end(), int64_t{0});
  for (; left > 0; --left) {
    size_t best = largest;
    auto claim = [&](size_t i) { return shares[i] / static_cast<double>(parts[i] + 1); };
    for (size_t i = 0; i < shares.size(); ++i)
      if (claim(i) > claim(best)) best = i;
    ++parts[best];
  }
  return parts;
}

}  // namespace yoke::collab
