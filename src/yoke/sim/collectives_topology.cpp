#include "yoke/sim/collectives_topology.h"

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>

#include "yoke/base/error.h"

namespace yoke::sim {
namespace {

using plan::Algorithm;
using plan::Collective;

constexpr int kMostWorkers = 512;
// Elements of the priced buffer are bytes; runtime pieces are 64 K elements of four.
constexpr int64_t kPieceBytes = 4 << 16;

const cluster::Topology& checked(const cluster::Topology& topology) {
  cluster::validate(topology);
  size_t workers = cluster::workers_of(topology).size();
  if (workers > kMostWorkers)
    throw ConfigError("topology {}: {} devices. Predictions are made for at most {}.", topology.name, workers,
                      kMostWorkers);
  return topology;
}

int equal_machines(const cluster::Routes& routes) {
  std::map<int, int> sizes;
  for (int w = 0; w < routes.workers(); ++w) {
    ++sizes[routes.machine(w)];
    // Ranks are numbered machine by machine.
    if (w > 0 && routes.machine(w) < routes.machine(w - 1)) return 1;
  }
  int first = sizes.begin()->second;
  bool alike =
      std::all_of(sizes.begin(), sizes.end(), [&](const auto& entry) { return entry.second == first; });
  return alike && sizes.size() > 1 ? first : 1;
}

// One set of ranks with its share of the data: rank r is worker order[r].
struct Channel {
  std::vector<int> order;
  int64_t bytes = 0;
};

std::vector<Channel> channels_of(const cluster::Routes& routes, const cluster::RingSet& rings,
                                 Algorithm algorithm, int64_t bytes) {
  std::vector<Channel> channels;
  if (algorithm == Algorithm::kRing) {
    for (const cluster::Ring& ring : rings.rings) {
      channels.push_back({ring, 0});
      if (rings.both_ways) channels.push_back({{ring.rbegin(), ring.rend()}, 0});
    }
  }
  if (channels.empty()) {
    std::vector<int> order(static_cast<size_t>(routes.workers()));
    std::iota(order.begin(), order.end(), 0);
    channels.push_back({std::move(order), 0});
  }
  int count = static_cast<int>(channels.size());
  for (int c = 0; c < count; ++c)
    channels[static_cast<size_t>(c)].bytes = plan::part_of(bytes, c, count).count;
  return channels;
}

plan::CollectiveRequest request_of(Collective op, Algorithm algorithm, const Channel& channel,
                                   int machine_size) {
  plan::CollectiveRequest request{.op = op, .algorithm = algorithm, .count = channel.bytes};
  request.size = static_cast<int>(channel.order.size());
  request.piece = kPieceBytes;
  request.machine_size = machine_size;
  // Worker 0 is the root on every channel.
  auto root = std::find(channel.order.begin(), channel.order.end(), 0);
  request.root = static_cast<int>(root - channel.order.begin());
  if (op == Collective::kBarrier) request.count = 0;
  if (op == Collective::kAllToAll) {
    int64_t part = channel.bytes / request.size + (channel.bytes % request.size != 0);
    request.count = 2 * request.size * part;
  }
  return request;
}

// Every message of every channel: its round, ends and bytes.
using Visit = std::function<void(int round, int from, int to, double bytes)>;

void for_each_message(const std::vector<Channel>& channels, Collective op, Algorithm algorithm,
                      int machine_size, const Visit& visit) {
  for (const Channel& channel : channels) {
    plan::CollectiveRequest request = request_of(op, algorithm, channel, machine_size);
    for (request.rank = 0; request.rank < request.size; ++request.rank) {
      int from = channel.order[static_cast<size_t>(request.rank)];
      for (const plan::Step& step : plan::collective_steps(request)) {
        if (step.action != plan::Action::kSend) continue;
        visit(step.round, from, channel.order[static_cast<size_t>(step.peer)],
              static_cast<double>(step.range.count));
      }
    }
  }
}

struct Message {
  int from, to;
  double bytes;
};

double round_seconds(const cluster::Routes& routes, const std::vector<Message>& messages,
                     std::vector<double>& load) {
  double latency = 0, busiest = 0;
  for (const Message& message : messages) {
    latency = std::max(latency, routes.latency(message.from, message.to));
    for (int link : routes.links(message.from, message.to)) {
      double& bytes = load[static_cast<size_t>(link)];
      bytes += message.bytes;
      busiest = std::max(busiest, bytes / routes.capacity(link));
    }
  }
  for (const Message& message : messages) {
    for (int link : routes.links(message.from, message.to)) load[static_cast<size_t>(link)] = 0;
  }
  return latency + busiest;
}

}  // namespace

TopologyPricer::TopologyPricer(const cluster::Topology& topology)
    : routes_(checked(topology)),
      rings_(cluster::best_rings(topology, routes_)),
      machine_size_(equal_machines(routes_)) {}

std::vector<Algorithm> TopologyPricer::algorithms(Collective op) const {
  std::vector<Algorithm> list = plan::algorithms_for(op);
  std::erase(list, Algorithm::kSummation);  // without spare machines it is `direct`
  if (machine_size_ == 1)
    list.erase(std::remove(list.begin(), list.end(), Algorithm::kHierarchical), list.end());
  return list;
}

double TopologyPricer::seconds(Collective op, Algorithm algorithm, int64_t bytes) const {
  std::vector<Channel> channels = channels_of(routes_, rings_, algorithm, bytes);
  std::vector<std::vector<Message>> rounds;
  for_each_message(channels, op, algorithm, machine_size_, [&](int round, int from, int to, double size) {
    if (rounds.size() <= static_cast<size_t>(round)) rounds.resize(static_cast<size_t>(round) + 1);
    rounds[static_cast<size_t>(round)].push_back({from, to, size});
  });
  std::vector<double> load(static_cast<size_t>(routes_.directed_links()), 0);
  double seconds = 0;
  for (const auto& messages : rounds) seconds += round_seconds(routes_, messages, load);
  return seconds;
}

std::vector<double> TopologyPricer::link_bytes(Collective op, Algorithm algorithm, int64_t bytes) const {
  std::vector<double> load(static_cast<size_t>(routes_.directed_links()), 0);
  for_each_message(channels_of(routes_, rings_, algorithm, bytes), op, algorithm, machine_size_,
                   [&](int, int from, int to, double size) {
                     for (int link : routes_.links(from, to)) load[static_cast<size_t>(link)] += size;
                   });
  return load;
}

}  // namespace yoke::sim
