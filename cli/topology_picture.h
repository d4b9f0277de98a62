// The devices and links of a topology, for report/topology_svg.h.
#pragma once

#include "yoke/cluster/topology/presets.h"
#include "yoke/report/lab_page.h"
#include "yoke/report/topology_svg.h"
#include "yoke/sim/collectives_topology.h"

namespace yoke::cli {

report::TopologyPicture picture_of(const cluster::Topology& topology);

// Devices and links, then the rings through them, if there are any.
void add_pictures(report::LabPage& page, const cluster::Topology& topology, const cluster::RingSet& rings);

}  // namespace yoke::cli
