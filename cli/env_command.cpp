#include "cli/env_command.h"

#include <fmt/core.h>

#include <algorithm>
#include <optional>

#include "cli/mesh_text.h"
#include "cli/output.h"
#include "cli/run_config.h"
#include "yoke/base/error.h"
#include "yoke/base/text.h"
#include "yoke/cluster/identity.h"
#include "yoke/parallel/fit.h"
#include "yoke/parallel/membership.h"

namespace yoke::cli {
namespace {

constexpr size_t kWidth = 80;

std::string cut(const std::string& text, size_t length) {
  return text.size() <= length ? text : text.substr(0, length - 3) + "...";
}

void print_variables(const std::vector<cluster::SeenVariable>& variables) {
  size_t names = 8;
  for (const auto& variable : variables) names = std::max(names, variable.name.size());
  constexpr size_t kValues = 16;
  size_t reasons = kWidth - names - kValues - 6;
  fmt::print("\n  {:<{}}  {:<{}}  {}\n", "variable", names, "value", kValues, "what for");
  for (const auto& variable : variables) {
    std::vector<std::string> lines = wrap(variable.why, reasons);
    fmt::print("{} {:<{}}  {:<{}}  {}\n", variable.used ? "*" : " ", variable.name, names,
               cut(variable.value, kValues), kValues, lines[0]);
    for (size_t i = 1; i < lines.size(); ++i) fmt::print("{:{}}{}\n", "", names + kValues + 6, lines[i]);
  }
  fmt::print("\n* used\n");
}

// Of a job with this many ranks: its axes from YOKE_PARALLEL__* variables, all else along the data axis.
struct SeenMesh {
  std::optional<parallel::Mesh> mesh;
  std::string problem;  // why there is none
};

SeenMesh mesh_of(const cluster::Identity& self) {
  try {
    Configuration configuration;
    configuration.load("", {});
    const int workers = parallel::workers_of(configuration.values, self.world_size);
    return {parallel::mesh_of(configuration.values, workers), ""};
  } catch (const ConfigError& error) {
    return {std::nullopt, error.what()};
  }
}

void print_mesh(const SeenMesh& seen) {
  std::vector<std::string> lines =
      seen.mesh ? std::vector{parallel::to_string(*seen.mesh)} : wrap("none: " + seen.problem, kWidth - 13);
  for (size_t i = 0; i < lines.size(); ++i) fmt::print("{:<13}{}\n", i == 0 ? "mesh" : "", lines[i]);
}

void print_table(const cluster::Identity& self) {
  bool told = self.source != "none";
  fmt::print("source       {}\n",
             told ? self.source : "none: no launcher detected, running on a single rank");
  fmt::print("rank         {} of {}\n", self.rank, self.world_size);
  fmt::print("local rank   {} of {}\n", self.local_rank, self.local_world_size);
  fmt::print("node rank    {}\n", self.node_rank);
  if (self.world_size > 1) {
    bool launcher = self.source == "yoke" && !self.hosts_coordinator;
    fmt::print("endpoint     {}\n", self.endpoint);
    fmt::print("coordinator  {}\n", self.hosts_coordinator ? "this process"
                                    : launcher             ? "the launcher or rank 0"
                                                           : "rank 0");
  }
  print_mesh(mesh_of(self));
  if (!self.variables.empty()) print_variables(self.variables);
}

}  // namespace

int show_environment(const CommandLine& line) {
  cluster::Identity self = cluster::identify_from_environment();
  if (!line.json) {
    print_table(self);
    return 0;
  }
  nlohmann::json variables = nlohmann::json::array();
  for (const auto& variable : self.variables) {
    variables.push_back(
        {{"name", variable.name}, {"value", variable.value}, {"used", variable.used}, {"why", variable.why}});
  }
  const SeenMesh seen = mesh_of(self);
  print_json({{"source", self.source},
              {"rank", self.rank},
              {"world_size", self.world_size},
              {"local_rank", self.local_rank},
              {"local_world_size", self.local_world_size},
              {"node_rank", self.node_rank},
              {"endpoint", self.endpoint},
              {"job_id", self.job_id},
              {"generation", self.generation},
              {"hosts_coordinator", self.hosts_coordinator},
              {"mesh", seen.mesh ? to_json(*seen.mesh) : nlohmann::json()},
              {"mesh_problem", seen.problem},
              {"variables", variables}});
  return 0;
}

}  // namespace yoke::cli
