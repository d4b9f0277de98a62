#include "yoke/parallel/mesh.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "yoke/base/error.h"
#include "yoke/base/text.h"

namespace yoke::parallel {
namespace {

constexpr int64_t kMostRanks = 1 << 20;

int* axis_of(Mesh& mesh, const std::string& name) {
  if (name == "pipeline") return &mesh.pipeline;
  if (name == "data") return &mesh.data;
  if (name == "tensor") return &mesh.tensor;
  return nullptr;
}

// What the other axes leave for the data axis, rounded to the best fit.
[[noreturn]] void refuse(int ranks, int64_t pipeline, int64_t data, int64_t tensor) {
  const int64_t others = pipeline * tensor;
  std::string asked;
  for (const auto& [name, size] : {std::pair("pipeline", pipeline), {"data", data}, {"tensor", tensor}})
    if (size > (name == std::string("data") ? 0 : 1))
      asked += fmt::format("{}parallel.{} = {}", asked.empty() ? "" : ", ", name, size);
  const std::string started =
      ranks == 1 ? "1 rank was started," : fmt::format("{} ranks were started,", ranks);
  if (data == 0) {
    const int64_t below = ranks / others * others;
    throw ConfigError("{}: {} but a multiple of {} is needed. Next: start {}{} (--nproc).", asked, started,
                      others, below > 0 ? fmt::format("{} or ", below) : "", below + others);
  }
  const int64_t wanted = others * data;
  throw ConfigError("{}: {} but the mesh has {}. Next: start {} (--nproc {}){}.", asked, started, wanted,
                    wanted, wanted,
                    ranks % others == 0 ? fmt::format(", or set parallel.data = {}", ranks / others) : "");
}

}  // namespace

Coordinates Mesh::at(int rank) const {
  YOKE_CHECK(rank >= 0 && rank < size(), "rank {} is outside a mesh of {}", rank, size());
  return {rank / (data * tensor), rank / tensor % data, rank % tensor};
}

int Mesh::rank_of(const Coordinates& place) const {
  return (place.pipeline * data + place.data) * tensor + place.tensor;
}

std::string to_string(const Mesh& mesh) {
  std::string text;
  for (const Mesh::Axis& axis : mesh.axes())
    if (axis.size > 1) text += fmt::format("{}{}={}", text.empty() ? "" : ",", axis.name, axis.size);
  return text.empty() ? "data=1" : text;
}

Mesh parse_mesh(const std::string& text) {
  Mesh mesh;
  std::vector<std::string> seen;
  int64_t ranks = 1;
  if (trim(text).empty())
    throw ConfigError("mesh '': no axis. Write for example pipeline=2,data=2,tensor=2.");
  for (const std::string& part : split(text, ',')) {
    const std::string word = trim(part);
    const size_t equals = word.find('=');
    const std::string name = trim(word.substr(0, equals));
    int* axis = axis_of(mesh, name);
    if (equals == std::string::npos || axis == nullptr)
      throw ConfigError("mesh '{}': '{}' is not an axis. Write for example pipeline=2,data=2,tensor=2.", text,
                        word);
    if (std::find(seen.begin(), seen.end(), name) != seen.end())
      throw ConfigError("mesh '{}': the axis {} is given twice.", text, name);
    seen.push_back(name);
    const std::string number = trim(word.substr(equals + 1));
    auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), *axis);
    if (error != std::errc() || end != number.data() + number.size() || *axis < 1)
      throw ConfigError("mesh '{}': {} = '{}' must be a whole number of at least 1.", text, name, number);
    ranks *= *axis;
    if (ranks > kMostRanks) throw ConfigError("mesh '{}': more than {} ranks.", text, kMostRanks);
  }
  return mesh;
}

Mesh fit_mesh(int ranks, int64_t pipeline, int64_t data, int64_t tensor) {
  const int64_t others = pipeline * tensor;
  YOKE_CHECK(pipeline > 0 && tensor > 0 && data >= 0, "axes of {}, {} and {}", pipeline, data, tensor);
  if (ranks % others != 0 || (data > 0 && data * others != ranks)) refuse(ranks, pipeline, data, tensor);
  return {static_cast<int>(pipeline), static_cast<int>(ranks / others), static_cast<int>(tensor)};
}

std::vector<std::vector<int>> groups_along(const Mesh& mesh, const std::string& axis) {
  std::vector<std::vector<int>> groups;
  for (int rank = 0; rank < mesh.size(); ++rank) {
    Coordinates place = mesh.at(rank);
    int& own = axis == "pipeline" ? place.pipeline : axis == "data" ? place.data : place.tensor;
    if (own != 0) continue;
    std::vector<int>& group = groups.emplace_back();
    const int size = axis == "pipeline" ? mesh.pipeline : axis == "data" ? mesh.data : mesh.tensor;
    for (own = 0; own < size; ++own) group.push_back(mesh.rank_of(place));
  }
  return groups;
}

}  // namespace yoke::parallel
