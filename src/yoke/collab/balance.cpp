#include "yoke/collab/balance.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "yoke/base/error.h"

namespace yoke::collab {
namespace {

constexpr double kFree = 1e300;  // bandwidth of a link that takes no time
constexpr int kHalvings = 200;

void check_rate(Bandwidth one, double least) {
  if (one && !(std::isfinite(*one) && *one >= least))
    throw ConfigError("bandwidth {}: expected a finite number {} 0.", *one,
                      least > 0 ? "above" : "of at least");
}

double mean_of_known(const std::vector<Bandwidth>& all) {
  double sum = 0;
  int known = 0;
  for (const Bandwidth& one : all) {
    if (!one) continue;
    sum += *one;
    ++known;
  }
  return known > 0 ? sum / known : 1.0;
}

std::vector<Link> symmetric(const std::vector<Bandwidth>& bandwidths) {
  std::vector<Bandwidth> that_sum;
  for (const Bandwidth& one : bandwidths) {
    check_rate(one, 0);
    if (one != 0.0) that_sum.push_back(one);
  }
  const double mean = mean_of_known(that_sum);
  std::vector<Link> links;
  for (const Bandwidth& one : bandwidths) {
    const double rate = one == 0.0 ? kFree : one.value_or(mean);
    links.push_back({rate, rate, one != 0.0});
  }
  return links;
}

// What a direction carries: base + slope * share.
struct Load {
  double base, slope, bandwidth;

  double time(double share) const { return (base + slope * share) / bandwidth; }
  double most(double time) const {  // share that it can carry in `time`
    const double room = time * bandwidth - base;
    if (slope > 0) return std::clamp(room / slope, 0.0, 1.0);
    return slope < 0 || room >= 0 ? 1 : 0;
  }
  double least(double time) const {  // share without which it takes longer than `time`
    return slope < 0 ? std::max(0.0, (time * bandwidth - base) / slope) : 0;
  }
};

class Programme {
 public:
  explicit Programme(const std::vector<Link>& links) {
    const auto peers = static_cast<double>(links.size());
    std::vector<Bandwidth> ups, downs;
    double givers = 0;
    for (const Link& link : links) {
      check_rate(link.upload, std::numeric_limits<double>::min());
      check_rate(link.download, std::numeric_limits<double>::min());
      ups.push_back(link.upload);
      downs.push_back(link.download);
      givers += link.gives;
    }
    const double up = mean_of_known(ups), down = mean_of_known(downs);
    for (const Link& link : links) {
      const double own = link.gives ? 1 : 0;
      peers_.push_back({{own, peers - 1 - own, link.upload.value_or(up)},
                        {1, givers - own - 1, link.download.value_or(down)},
                        link.sums});
    }
  }

  double time(const std::vector<double>& shares) const {
    double time = 0;
    for (size_t i = 0; i < peers_.size() && peers_.size() > 1; ++i)
      time = std::max({time, peers_[i].up.time(shares[i]), peers_[i].down.time(shares[i])});
    return time;
  }

  std::vector<double> solve() const {
    double low = 0, high = 1;
    while (!is_feasible(high) && high < kFree) high *= 2;
    while (is_feasible(high / 2) && high > 1 / kFree) high /= 2;
    halve(low, high, [&](double time) { return is_feasible(time); });
    // Of the shares that take this time those that fill fast links first, as if the slow ones did not count.
    const std::vector<double> least = least_shares(high);
    double early = 0, late = high;
    halve(early, late, [&](double time) { return sum(filled(time, least)) >= 1; });
    return scaled(filled(late, least), least);
  }

  std::vector<double> by_bandwidth() const {
    std::vector<double> shares;
    for (const Peer& peer : peers_)
      shares.push_back(peer.sums ? std::min(peer.up.bandwidth, peer.down.bandwidth) : 0);
    const double all = sum(shares);
    for (double& share : shares) share /= all;
    return shares;
  }

 private:
  struct Peer {
    Load up, down;
    bool sums;
    double most(double time) const { return sums ? std::min(up.most(time), down.most(time)) : 0; }
    double least(double time) const { return std::max(up.least(time), down.least(time)); }
    // Not with any share.
    bool misses(double time) const {
      const double share = sums ? std::clamp(most(time), 0.0, 1.0) : 0;
      return least(time) > share || up.time(0) > time || (down.slope >= 0 && down.time(0) > time);
    }
  };

  static double sum(const std::vector<double>& shares) {
    return std::accumulate(shares.begin(), shares.end(), 0.0);
  }

  template <class Enough>
  static void halve(double& low, double& high, Enough&& enough) {
    for (int i = 0; i < kHalvings && high - low > 1e-15 * high; ++i) {
      const double middle = (low + high) / 2;
      (enough(middle) ? high : low) = middle;
    }
  }

  bool is_feasible(double time) const {
    double least = 0, most = 0;
    for (const Peer& peer : peers_) {
      if (peer.misses(time)) return false;
      least += peer.least(time);
      most += peer.most(time);
    }
    return least <= 1 && most >= 1;
  }

  std::vector<double> least_shares(double time) const {
    std::vector<double> shares;
    for (const Peer& peer : peers_) shares.push_back(peer.least(time));
    return shares;
  }

  std::vector<double> filled(double time, const std::vector<double>& least) const {
    std::vector<double> shares;
    for (size_t i = 0; i < peers_.size(); ++i) shares.push_back(std::max(least[i], peers_[i].most(time)));
    return shares;
  }

  // What is above `least` shrunk until the sum is 1.
  static std::vector<double> scaled(std::vector<double> shares, const std::vector<double>& least) {
    const double fixed = sum(least), free = sum(shares) - fixed;
    const double factor = free > 0 ? std::max(0.0, 1 - fixed) / free : 0;
    for (size_t i = 0; i < shares.size(); ++i) shares[i] = least[i] + factor * (shares[i] - least[i]);
    const double all = sum(shares);
    for (double& share : shares) share /= all;
    return shares;
  }

  std::vector<Peer> peers_;
};

void normalise(std::vector<double>& shares) {
  const double sum = std::accumulate(shares.begin(), shares.end(), 0.0);
  for (double& share : shares) share /= sum;
}

}  // namespace

Balance balance_links(const std::vector<Link>& links) {
  if (std::none_of(links.begin(), links.end(), [](const Link& link) { return link.sums; }))
    throw ConfigError(
        "none of {} peers accepts connections: at least one must sum. Start one without "
        "--client-only.",
        links.size());
  const Programme programme(links);
  // Of two peers with gradients each moves one vector each way, whatever the shares.
  const bool any_shares = links.size() == 1 || (links.size() == 2 && links[0].gives && links[1].gives);
  Balance result{any_shares ? programme.by_bandwidth() : programme.solve(), 0};
  result.time = programme.time(result.shares);
  return result;
}

Balance balance_load(const std::vector<Bandwidth>& bandwidths) {
  return balance_links(symmetric(bandwidths));
}

double links_time(const std::vector<Link>& links, const std::vector<double>& shares) {
  YOKE_CHECK(links.size() == shares.size(), "{} links, {} shares", links.size(), shares.size());
  return Programme(links).time(shares);
}

double averaging_time(const std::vector<Bandwidth>& bandwidths, const std::vector<double>& shares) {
  return links_time(symmetric(bandwidths), shares);
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
