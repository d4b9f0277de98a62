#include "yoke/plan/partition/partition_file.h"

#include <algorithm>
#include <numeric>

#include "yoke/base/error.h"
#include "yoke/base/file.h"
#include "yoke/base/json_text.h"
#include "yoke/plan/pipeline/json_reader.h"

namespace yoke::plan {
namespace {

using nlohmann::json;

constexpr int64_t kLargestPartitionFile = 64 << 20;
constexpr int64_t kMostPartitionNodes = 1'000'000;

struct Placed {
  std::string name;
  int part = 0;
};

// The nodes of one part, entered at their numbers.
void read_part(const json& document, int part, const std::string& where,
               std::vector<std::pair<int64_t, Placed>>& out) {
  JsonReader reader(document, where);
  const json& nodes = reader.array("nodes");
  if (!reader.has("names"))
    throw ConfigError("{}: no names of its nodes. Make it anew: yoke partition PROFILE --json.", where);
  const json& names = reader.array("names");
  if (nodes.empty()) reader.refuse("nodes", "at least one node");
  if (names.size() != nodes.size()) reader.refuse("names", "as many names as nodes");
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (!nodes[i].is_number_integer() || nodes[i].get<int64_t>() < 0 ||
        nodes[i].get<int64_t>() >= kMostPartitionNodes)
      reader.refuse("nodes", "numbers of nodes");
    if (!names[i].is_string()) reader.refuse("names", "texts");
    out.emplace_back(nodes[i].get<int64_t>(), Placed{names[i].get<std::string>(), part});
  }
}

}  // namespace

double balance_of(const Partition& partition) {
  double total = std::accumulate(partition.weights.begin(), partition.weights.end(), 0.0);
  double heaviest = *std::max_element(partition.weights.begin(), partition.weights.end());
  return total > 0 ? heaviest * static_cast<double>(partition.weights.size()) / total : 1;
}

json to_json(const Partition& partition, const Profile& profile) {
  json parts = json::array();
  for (double weight : partition.weights)
    parts.push_back({{"nodes", json::array()}, {"names", json::array()}, {"weight", weight}});
  for (size_t node = 0; node < partition.part_of.size(); ++node) {
    json& part = parts[static_cast<size_t>(partition.part_of[node])];
    part["nodes"].push_back(node);
    part["names"].push_back(profile.layers[node].name);
  }
  return {{"parts", std::move(parts)},
          {"cut_bytes", partition.cut_bytes},
          {"balance", balance_of(partition)},
          {"optimal", partition.optimal}};
}

NamedPartition parse_partition(std::string_view text, const std::string& file_name) {
  json document = parse_json(text, file_name);
  JsonReader reader(document, file_name);
  const json& parts = reader.array("parts");
  NamedPartition partition;
  partition.parts = static_cast<int>(parts.size());
  partition.cut_bytes = reader.number("cut_bytes");
  std::vector<std::pair<int64_t, Placed>> nodes;
  for (size_t i = 0; i < parts.size(); ++i)
    read_part(parts[i], static_cast<int>(i), fmt::format("{}: parts[{}]", file_name, i), nodes);
  if (nodes.empty()) throw ConfigError("{}: no parts. Expected at least one.", file_name);
  std::stable_sort(nodes.begin(), nodes.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  for (size_t i = 0; i < nodes.size(); ++i) {
    const auto number = static_cast<int64_t>(i);
    if (nodes[i].first != number)
      throw ConfigError("{}: node {} is {}.", file_name, std::min(nodes[i].first, number),
                        nodes[i].first < number ? "in two parts" : "in no part");
    partition.names.push_back(std::move(nodes[i].second.name));
    partition.part_of.push_back(nodes[i].second.part);
  }
  return partition;
}

NamedPartition read_partition(const std::filesystem::path& path) {
  return parse_partition(read_file(path, kLargestPartitionFile), path.string());
}

std::vector<int> parts_of_nodes(const NamedPartition& partition, const std::vector<std::string>& nodes,
                                const std::string& file_name) {
  const std::string next = "Make it from a profile of this model: yoke profile, then yoke partition --json.";
  for (size_t i = 0; i < std::min(nodes.size(), partition.names.size()); ++i)
    if (nodes[i] != partition.names[i])
      throw ConfigError(
          "parallel.partition = \"{}\": it is of another graph: node {} is '{}' there and '{}' "
          "in the model. {}",
          file_name, i, partition.names[i], nodes[i], next);
  if (nodes.size() != partition.names.size())
    throw ConfigError(
        "parallel.partition = \"{}\": it is of another graph: {} nodes there, {} in the model. "
        "{}",
        file_name, partition.names.size(), nodes.size(), next);
  return partition.part_of;
}

}  // namespace yoke::plan
