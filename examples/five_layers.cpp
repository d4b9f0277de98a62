// Model parallelism of the textbooks: five locally connected layers on four learners, and what must travel.
//   build/example_five_layers five_layers.svg
// Each layer has eight tiles of units; a tile reads the three tiles of the layer before that lie around it.
#include <fmt/core.h>

#include "yoke/base/error.h"
#include "yoke/base/file.h"
#include "yoke/plan/partition/partition.h"
#include "yoke/report/graph_svg.h"

namespace {

constexpr int kLayers = 5, kTiles = 8, kLearners = 4;

yoke::plan::Profile five_layers() {
  yoke::plan::Profile network;
  for (int layer = 0; layer < kLayers; ++layer) {
    for (int tile = 0; tile < kTiles; ++tile) {
      const int node = layer * kTiles + tile;
      network.layers.push_back({.name = fmt::format("layer {} tile {}", layer + 1, tile + 1),
                                .forward = 1e-3,
                                .backward = 2e-3,
                                .activation_bytes = 4096,
                                .parameter_bytes = 3 << 20});
      for (int before = tile - 1; layer > 0 && before <= tile + 1; ++before)
        if (before >= 0 && before < kTiles) network.edges.push_back({(layer - 1) * kTiles + before, node});
    }
  }
  return network;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    yoke::plan::Profile network = five_layers();
    yoke::plan::Partition parts = make_partition(yoke::plan::graph_of(network), {.parts = kLearners});
    yoke::report::GraphPicture picture{
        .title = "Five locally connected layers on four learners",
        .subtitle = fmt::format("{:.0f} outputs of 4 KiB cross (thick lines)", parts.cut_bytes / 4096),
        .nodes = {},
        .lines = {},
        .groups = {}};
    for (size_t i = 0; i < network.layers.size(); ++i)
      picture.nodes.push_back({network.layers[i].name, parts.part_of[i]});
    for (const yoke::plan::Edge& edge : network.edges) picture.lines.push_back({edge.from, edge.to});
    for (size_t i = 0; i < parts.weights.size(); ++i)
      picture.groups.push_back(fmt::format("learner {}: {:.0f} ms of work", i, parts.weights[i] * 1e3));
    if (argc > 1) yoke::write_file_atomically(argv[1], graph_svg(picture));
    fmt::print("{} nodes on {} learners: {:.0f} outputs cross{}\n", network.layers.size(), kLearners,
               parts.cut_bytes / 4096, parts.optimal ? ", and no split crosses less" : "");
    return 0;
  } catch (const yoke::Error& error) {
    fmt::print(stderr, "error: {}\n", error.what());
    return static_cast<int>(error.code());
  }
}
