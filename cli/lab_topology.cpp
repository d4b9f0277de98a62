#include "cli/lab_topology.h"

#include <fmt/core.h>

#include <algorithm>

#include "cli/topology_picture.h"
#include "yoke/base/error.h"
#include "yoke/base/units.h"
#include "yoke/cluster/topology/presets.h"
#include "yoke/report/svg_chart.h"
#include "yoke/sim/collectives_topology.h"

namespace yoke::cli {

const std::vector<LabOption> kTopologyOptions = {
    {"--presets", "pcie4,pcie8,dgx1,p2.16xlarge,dgx2,h100", "pcie4,dgx1", "machines to draw"},
    {"--file", "", "", "draw this cluster.toml too"},
    {"--bytes", "64MB", "64MB", "all-reduce whose time is predicted"},
};

namespace {

class TopologyLab {
 public:
  explicit TopologyLab(Lab& lab) : lab_(lab), bytes_(lab.values.sizes("--bytes").front()) {
    for (const std::string& name : lab.values.words("--presets"))
      topologies_.push_back(cluster::preset(name));
    const std::string& file = lab.values.text("--file");
    if (!file.empty()) topologies_.push_back(cluster::read_topology(file));
  }

  void run() {
    lab_.page.title = "Machines and their rings";
    lab_.page.about =
        "The presets of yoke topo, and the largest set of rings that share no link. Thicker lines: more "
        "parallel links.";
    lab_.expect(topologies_.size());
    report::LabTable table{{"machine", "devices", "rings", "through each device",
                            "all-reduce of " + format_bytes(double(bytes_)), "fastest"},
                           {}};
    for (const cluster::Topology& topology : topologies_)
      lab_.part(topology.name, [&] { draw(topology, table); });
    table.notes = {
        "Through each device: bytes per second that all rings carry through one device. With R rings of "
        "bandwidth B "
        "an all-reduce of S bytes takes about 2(N-1)/N x S/(R B)."};
    lab_.page.section("Side by side");
    lab_.show(table);
  }

 private:
  void draw(const cluster::Topology& topology, report::LabTable& table) {
    const sim::TopologyPricer pricer(topology);
    const cluster::RingSet& rings = pricer.rings();
    const std::vector<int> workers = cluster::workers_of(topology);
    std::string fastest;
    double best = 0;
    for (plan::Algorithm one : pricer.algorithms(plan::Collective::kAllReduce)) {
      const double seconds = pricer.seconds(plan::Collective::kAllReduce, one, bytes_);
      if (best == 0 || seconds < best) {
        best = seconds;
        fastest = plan::to_string(one);
      }
    }
    lab_.page.section(topology.name);
    add_pictures(lab_.page, topology, rings);
    const double ring_seconds =
        workers.size() > 1 ? pricer.seconds(plan::Collective::kAllReduce, plan::Algorithm::kRing, bytes_) : 0;
    table.rows.push_back({topology.name, fmt::format("{}", workers.size()),
                          fmt::format("{}", rings.rings.size()), format_bytes(rings.bandwidth) + "/s",
                          format_duration(best), fastest});
    lab_.result({{"machine", topology.name},
                 {"devices", workers.size()},
                 {"rings", rings.rings.size()},
                 {"ring_bandwidth", rings.bandwidth},
                 {"all_reduce_seconds", best},
                 {"all_reduce_algorithm", fastest},
                 {"ring_seconds", ring_seconds}});
  }

  Lab& lab_;
  const int64_t bytes_;
  std::vector<cluster::Topology> topologies_;
};

}  // namespace

void run_lab_topology(Lab& lab) {
  TopologyLab(lab).run();
}

}  // namespace yoke::cli
