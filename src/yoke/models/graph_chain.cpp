// A graph as a chain of blocks that hand on what later ones read.
#include <algorithm>
#include <map>
#include <set>

#include "yoke/base/error.h"
#include "yoke/models/graph.h"

namespace yoke::models {
namespace {

// Values between blocks, in a fixed order: tensors of the batch as negative numbers, outputs of nodes.
using Slots = std::vector<int>;

int slot_of(const Source& source) {
  return source.node == Source::kBatch ? -1 - source.tensor : source.node;
}

// What must travel on behind `node`.
Slots alive_after(const Graph& graph, int node) {
  if (node == graph.last()) return graph.outputs;
  std::set<int> slots;
  for (int reader = node + 1; reader <= graph.last(); ++reader)
    for (const Source& one : graph.sources[static_cast<size_t>(reader)])
      if (slot_of(one) <= node) slots.insert(slot_of(one));
  for (int output : graph.outputs)
    if (output <= node) slots.insert(output);
  return {slots.begin(), slots.end()};
}

class Link {
 public:
  Link(std::shared_ptr<const Graph> graph, int node)
      : graph_(std::move(graph)),
        node_(node),
        before_(node > 0 ? alive_after(*graph_, node - 1) : Slots()),
        after_(alive_after(*graph_, node)) {}

  Tensors operator()(const Tensors& values) const {
    std::map<int, torch::Tensor> known;
    for (size_t i = 0; i < values.size(); ++i)
      known[node_ == 0 ? -1 - static_cast<int>(i) : before_.at(i)] = values[i];
    Tensors inputs;
    for (const Source& one : graph_->sources[static_cast<size_t>(node_)])
      inputs.push_back(value(known, slot_of(one)));
    Tensors outputs = run_node(*graph_, node_, inputs);
    if (outputs.size() != 1)
      throw ConfigError("model '{}': node '{}' gives {} tensors. A node of a wrapped graph gives one.",
                        graph_->model, name(), outputs.size());
    known[node_] = outputs[0];
    Tensors on;
    for (int slot : after_) on.push_back(value(known, slot));
    return on;
  }

 private:
  const std::string& name() const { return graph_->nodes[static_cast<size_t>(node_)].name; }

  const torch::Tensor& value(const std::map<int, torch::Tensor>& known, int slot) const {
    auto found = known.find(slot);
    if (found == known.end())
      throw ConfigError("model '{}': node '{}' or a later one reads tensor {} of the batch, which has fewer.",
                        graph_->model, name(), -1 - slot);
    return found->second;
  }

  std::shared_ptr<const Graph> graph_;
  int node_;
  Slots before_, after_;
};

}  // namespace

std::vector<Block> chain_of(const Graph& given) {
  auto graph = std::make_shared<const Graph>(given);
  std::vector<Block> blocks;
  for (int node = 0; node <= graph->last(); ++node) {
    const Block& one = graph->nodes[static_cast<size_t>(node)];
    blocks.push_back({one.name, Link(graph, node), one.modules});
  }
  return blocks;
}

}  // namespace yoke::models
