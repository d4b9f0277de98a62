// A partition as a file: what `yoke partition --json` prints and parallel.partition reads.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "yoke/plan/partition/partition.h"

namespace yoke::plan {

struct NamedPartition {
  std::vector<std::string> names;  // of the nodes, by number
  std::vector<int> part_of;        // of each node
  int parts = 0;
  double cut_bytes = 0;
  bool operator==(const NamedPartition&) const = default;
};

// {parts[{nodes, names, weight}], cut_bytes, balance, optimal}: nodes by number and by name.
nlohmann::json to_json(const Partition& partition, const Profile& profile);

// The heaviest part over the average.
double balance_of(const Partition& partition);

// A document of to_json(). Throws ConfigError with `file_name` and what is wrong: no names (a file of an
// older version), a node twice or missing, an empty part.
NamedPartition parse_partition(std::string_view text, const std::string& file_name);
NamedPartition read_partition(const std::filesystem::path& path);

// The part of each of `nodes`. Throws ConfigError that names the first difference where the partition is of
// another graph.
std::vector<int> parts_of_nodes(const NamedPartition& partition, const std::vector<std::string>& nodes,
                                const std::string& file_name);

}  // namespace yoke::plan
