#include <fmt/core.h>

#include "cli/output.h"
#include "cli/run_config.h"
#include "cli/torch/commands.h"
#include "yoke/base/units.h"
#include "yoke/checkpoint/tensors.h"
#include "yoke/models/graph.h"
#include "yoke/models/model.h"

namespace yoke::cli {
namespace {

models::ModelOptions model_options(const CommandLine& line, Configuration& configuration) {
  std::vector<config::Override> overrides = {{"model.name", line.model.name, "NAME"}};
  overrides.insert(overrides.end(), line.overrides.begin(), line.overrides.end());
  configuration.load("", overrides);
  return configuration.values.model;
}

int64_t count(const models::Block& block) {
  int64_t parameters = 0;
  for (const auto& module : block.modules) {
    for (const torch::Tensor& parameter : module->parameters()) parameters += parameter.numel();
  }
  return parameters;
}

// What parallel.partition distributes.
void add_graph(nlohmann::json& document, const models::Graph& graph) {
  document["nodes"] = nlohmann::json::array();
  document["edges"] = nlohmann::json::array();
  for (const models::Block& node : graph.nodes)
    document["nodes"].push_back({{"name", node.name}, {"inputs", node.inputs}, {"parameters", count(node)}});
  for (auto [from, to] : graph.edges()) document["edges"].push_back({from, to});
}

}  // namespace

int run_model_info(const CommandLine& line) {
  Configuration configuration;
  models::Model model = models::lay_out(model_options(line, configuration));
  nlohmann::json blocks = nlohmann::json::array();
  for (const models::Block& block : model.blocks)
    blocks.push_back({{"name", block.name}, {"parameters", count(block)}});
  nlohmann::json tensors = nlohmann::json::array();
  auto add = [&](const std::string& name, const torch::Tensor& tensor) {
    auto type = checkpoint::to_dtype(tensor.scalar_type());
    tensors.push_back({{"name", name},
                       {"shape", tensor.sizes().vec()},
                       {"dtype", type ? std::string(checkpoint::format::name_of(*type)) : "?"}});
  };
  for (const auto& item : model.module->named_parameters()) add(item.key(), item.value());
  for (const auto& item : model.module->named_buffers()) add(item.key(), item.value());
  if (line.json) {
    nlohmann::json document = {{"model", model.name},
                               {"parameters", model.parameter_count()},
                               {"sample", to_string(model.sample)},
                               {"blocks", blocks},
                               {"tensors", tensors}};
    if (!model.nodes.empty()) add_graph(document, models::graph_of(model));
    print_json(document);
    return 0;
  }
  fmt::print("{}: {} parameters in {} tensors, takes {}\n\n", model.name,
             format_count(static_cast<double>(model.parameter_count())), model.module->parameters().size(),
             to_string(model.sample));
  for (const models::Block& block : model.blocks) {
    fmt::print("  {:<24} {:>14}\n", block.name, format_count(static_cast<double>(count(block))));
  }
  if (!model.nodes.empty())
    fmt::print("\nNo chain: a graph of {} nodes, which parallel.partition distributes (--json lists them).\n",
               model.nodes.size());
  return 0;
}

int run_model_export(const CommandLine& line) {
  Configuration configuration;
  models::ModelOptions options = model_options(line, configuration);
  torch::manual_seed(static_cast<uint64_t>(configuration.values.train.loop.seed));
  models::Model model = models::build(options);
  std::vector<std::pair<std::string, torch::Tensor>> tensors;
  for (const auto& item : model.module->named_parameters())
    tensors.emplace_back(item.key(), item.value().detach());
  for (const auto& item : model.module->named_buffers()) tensors.emplace_back(item.key(), item.value());
  checkpoint::save_tensors(line.model.output, tensors, {{"format", "pt"}, {"model", options.name}});
  if (line.json) {
    print_json(
        {{"file", line.model.output}, {"tensors", tensors.size()}, {"parameters", model.parameter_count()}});
  } else {
    fmt::print("{}: {} tensors, {} parameters\n", line.model.output, tensors.size(),
               format_count(static_cast<double>(model.parameter_count())));
  }
  return 0;
}

}  // namespace yoke::cli
