// Where the devices of a machine stand in its pictures, and the way of its links.
#pragma once

#include <string>
#include <vector>

#include "yoke/report/topology_svg.h"

namespace yoke::report {

struct LayoutSize {
  double width = 760;
  double layer_gap = 62;
  double node_height = 30;
  double node_width = 92;  // at most
  double top = 40;         // above the first layer
  // Of nodes of this kind; empty: none differs.
  std::string tall_kind = {};
  double tall_height = 0;
};

class TopologyLayout {
 public:
  // Keeps a reference to `picture`.
  TopologyLayout(const TopologyPicture& picture, const LayoutSize& size);

  struct Place {
    double x = 0, y = 0;  // the middle
    double width = 0, height = 0;
  };
  const Place& place(int node) const { return places_[static_cast<size_t>(node)]; }
  double height() const { return height_; }
  // The attribute `d` of a link. Within a layer it is an arc below it.
  std::string path(const TopologyPicture::Link& link) const;

 private:
  bool within_layer(const TopologyPicture::Link& link) const;
  double arc_depth(const TopologyPicture::Link& link) const;
  double arc_room(int layer) const;

  const TopologyPicture& picture_;
  std::vector<Place> places_;
  double height_ = 0;
};

}  // namespace yoke::report
