#include "cli/ring_on_topology.h"

#include <fmt/core.h>

#include <algorithm>
#include <numeric>

#include "cli/topology_picture.h"
#include "yoke/base/error.h"
#include "yoke/cluster/topology/rings.h"
#include "yoke/cluster/topology/routes.h"
#include "yoke/sim/collectives.h"

namespace yoke::cli {
namespace {

using Sums = std::vector<std::vector<int>>;

constexpr int kMostSteps = 14;  // that are drawn

// Network interfaces of a single machine carry nothing here.
cluster::Topology without_idle_nics(const cluster::Topology& topology) {
  if (topology.machines.size() > 1) return topology;
  cluster::Topology out = topology;
  auto is_nic = [&](const std::string& name) {
    return std::ranges::any_of(topology.devices, [&](const cluster::Device& device) {
      return device.name == name && device.kind == cluster::DeviceKind::kNic;
    });
  };
  std::erase_if(out.devices,
                [](const cluster::Device& device) { return device.kind == cluster::DeviceKind::kNic; });
  std::erase_if(out.links, [&](const cluster::Link& link) { return is_nic(link.a) || is_nic(link.b); });
  return out;
}

// Of `count` steps.
bool is_drawn(int step, int count) {
  const int half = count / 2, most = kMostSteps / 2;
  const int within = step % half;
  return half <= most || within < most - 1 || within == half - 1;
}

class RingSteps {
 public:
  explicit RingSteps(const cluster::Topology& topology)
      : topology_(topology), routes_(topology), picture_(picture_of(topology)) {
    const cluster::RingSet rings = cluster::best_rings(topology, routes_);
    order_.resize(static_cast<size_t>(routes_.workers()));
    std::iota(order_.begin(), order_.end(), 0);
    if (!rings.rings.empty()) order_ = rings.rings[0];
  }

  report::RingSteps draw() const {
    const auto ranks = static_cast<int>(order_.size());
    report::RingSteps out{.label = fmt::format("An all-reduce on the ring of {}", topology_.name),
                          .machine = picture_,
                          .ranks = nodes(),
                          .worker_kind = {}};
    out.worker_kind = picture_.nodes[static_cast<size_t>(out.ranks[0])].kind;
    plan::CollectiveRequest request;
    request.size = ranks;
    request.count = ranks;  // a part is one element
    const sim::StepLists lists = sim::steps_of_all(request);
    Sums sums(order_.size(), std::vector<int>(order_.size(), 1));
    const size_t links = picture_.links.size();
    out.steps.push_back(
        {"at the start", false, std::vector<int>(links), std::vector<int>(order_.size(), -1), sums});
    const int count = 2 * (ranks - 1);
    for (int round = 0; round < count; ++round) {
      report::RingSteps::Step step = step_of(lists, round, sums);
      step.title = fmt::format("step {} of {}: {}", round + 1, count, step.gathers ? "pass on" : "add");
      if (is_drawn(round, count)) out.steps.push_back(std::move(step));
    }
    return out;
  }

 private:
  std::vector<int> nodes() const {
    const std::vector<int> workers = cluster::workers_of(topology_);
    std::vector<int> out;
    for (int worker : order_) {
      const std::string& name =
          topology_.devices[static_cast<size_t>(workers[static_cast<size_t>(worker)])].name;
      const auto node = std::ranges::find(picture_.nodes, name, &report::TopologyPicture::Node::name);
      out.push_back(static_cast<int>(node - picture_.nodes.begin()));
    }
    return out;
  }

  // Applies the round to `sums`.
  report::RingSteps::Step step_of(const sim::StepLists& lists, int round, Sums& sums) const {
    report::RingSteps::Step step;
    std::vector<int> directed(static_cast<size_t>(routes_.directed_links()));
    step.arrived.assign(order_.size(), -1);
    const Sums before = sums;
    for (size_t rank = 0; rank < order_.size(); ++rank)
      for (const plan::Step& one : lists[rank]) {
        if (one.round != round || one.action == plan::Action::kSend) continue;
        const auto part = static_cast<size_t>(one.range.begin), peer = static_cast<size_t>(one.peer);
        step.gathers = one.action == plan::Action::kReceive;
        sums[rank][part] = before[peer][part] + (step.gathers ? 0 : before[rank][part]);
        step.arrived[rank] = static_cast<int>(part);
        for (int link : routes_.links(order_[peer], order_[rank])) ++directed[static_cast<size_t>(link)];
      }
    for (size_t link = 0; link < picture_.links.size(); ++link)
      step.messages.push_back(std::max(directed[2 * link], directed[2 * link + 1]));
    step.sums = sums;
    return step;
  }

  const cluster::Topology& topology_;
  const cluster::Routes routes_;
  const report::TopologyPicture picture_;
  std::vector<int> order_;  // workers along the ring
};

}  // namespace

report::RingSteps ring_steps(const cluster::Topology& topology) {
  const cluster::Topology machine = without_idle_nics(topology);
  if (cluster::workers_of(machine).size() < 2)
    throw ConfigError("topology {}: a ring needs at least two devices.", topology.name);
  return RingSteps(machine).draw();
}

}  // namespace yoke::cli
