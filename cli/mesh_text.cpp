#include "cli/mesh_text.h"

#include <fmt/core.h>

namespace yoke::cli {
namespace {

// More would scroll off the screen; --json has all of them.
constexpr int kShownRanks = 64;

}  // namespace

nlohmann::json to_json(const parallel::Mesh& mesh) {
  nlohmann::json axes = nlohmann::json::array(), ranks = nlohmann::json::array();
  for (const parallel::Mesh::Axis& axis : mesh.axes())
    axes.push_back({{"name", axis.name}, {"size", axis.size}});
  for (int rank = 0; rank < mesh.size(); ++rank) {
    const parallel::Coordinates at = mesh.at(rank);
    ranks.push_back({{"rank", rank},
                     {"coordinates", {{"pipeline", at.pipeline}, {"data", at.data}, {"tensor", at.tensor}}}});
  }
  return {{"axes", axes}, {"ranks", ranks}};
}

void print_mesh(const parallel::Mesh& mesh) {
  fmt::print("mesh {}: {} ranks\n", parallel::to_string(mesh), mesh.size());
  fmt::print("{:>6}  {:>8}  {:>4}  {:>6}\n", "rank", "pipeline", "data", "tensor");
  for (int rank = 0; rank < mesh.size() && rank < kShownRanks; ++rank) {
    const parallel::Coordinates at = mesh.at(rank);
    fmt::print("{:>6}  {:>8}  {:>4}  {:>6}\n", rank, at.pipeline, at.data, at.tensor);
  }
  if (mesh.size() > kShownRanks) fmt::print("  ... {} more (--json)\n", mesh.size() - kShownRanks);
}

}  // namespace yoke::cli
