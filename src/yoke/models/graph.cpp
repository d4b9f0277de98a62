#include "yoke/models/graph.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <set>
#include <stdexcept>

#include "yoke/base/error.h"
#include "yoke/base/text.h"

namespace yoke::models {
namespace {

const std::string kInput = "input";

// "input" and "input.1" are tensors of the batch.
std::optional<int> batch_tensor(const std::string& name) {
  if (name == kInput) return 0;
  if (!name.starts_with(kInput + ".")) return std::nullopt;
  int number = 0;
  const char *begin = name.data() + kInput.size() + 1, *end = name.data() + name.size();
  auto [stop, error] = std::from_chars(begin, end, number);
  if (error != std::errc() || stop != end || number < 0) return std::nullopt;
  return number;
}

// Checks names and sorts nodes into an order of execution.
class Resolver {
 public:
  explicit Resolver(const Model& model) : model_(model) {}

  Graph resolve() {
    for (size_t i = 0; i < model_.nodes.size(); ++i) enter(static_cast<int>(i));
    for (const Block& node : model_.nodes) reads_.push_back(sources_of(node));
    sort();
    Graph graph;
    graph.model = model_.name;
    for (int node : order_) graph.nodes.push_back(model_.nodes[at(node)]);
    for (int node : order_) {
      graph.sources.push_back(reads_[at(node)]);
      for (Source& one : graph.sources.back())
        if (one.node != Source::kBatch) one.node = place_[at(one.node)];
    }
    graph.outputs = outputs(graph);
    return graph;
  }

 private:
  static size_t at(int index) { return static_cast<size_t>(index); }

  [[noreturn]] void refuse(const std::string& what) const {
    throw ConfigError("model '{}': {}", model_.name, what);
  }

  void enter(int index) {
    const Block& node = model_.nodes[at(index)];
    if (node.name.empty()) refuse(fmt::format("node {} has no name.", index));
    if (batch_tensor(node.name))
      refuse(fmt::format("a node is named '{}', which stands for a tensor of the batch.", node.name));
    if (!node.forward) refuse(fmt::format("node '{}' has no forward.", node.name));
    if (!numbers_.emplace(node.name, index).second)
      refuse(fmt::format("two nodes are named '{}'.", node.name));
  }

  int number_of(const std::string& name, const std::string& who) const {
    auto found = numbers_.find(name);
    if (found != numbers_.end()) return found->second;
    std::vector<std::string> names = {kInput};
    for (const Block& node : model_.nodes) names.push_back(node.name);
    std::string near = nearest_name(name, names);
    refuse(fmt::format("{} '{}', which is no node of it.{}", who, name,
                       near.empty() ? "" : " Did you mean '" + near + "'?"));
  }

  std::vector<Source> sources_of(const Block& node) const {
    if (node.inputs.empty()) refuse(fmt::format("node '{}' names no inputs.", node.name));
    std::vector<Source> sources;
    for (const std::string& name : node.inputs) {
      if (auto tensor = batch_tensor(name))
        sources.push_back({Source::kBatch, *tensor});
      else
        sources.push_back({number_of(name, fmt::format("node '{}' reads", node.name)), Source::kAll});
    }
    return sources;
  }

  // As listed, as far as inputs come first.
  void sort() {
    const int count = static_cast<int>(model_.nodes.size());
    place_.assign(at(count), -1);
    auto ready = [&](int node) {
      return std::ranges::all_of(reads_[at(node)], [&](const Source& one) {
        return one.node == Source::kBatch || place_[at(one.node)] >= 0;
      });
    };
    std::set<int> left;
    for (int i = 0; i < count; ++i) left.insert(i);
    while (!left.empty()) {
      auto next = std::ranges::find_if(left, ready);
      if (next == left.end()) refuse_cycle(*left.begin());
      place_[at(*next)] = static_cast<int>(order_.size());
      order_.push_back(*next);
      left.erase(next);
    }
  }

  // Every node that is left waits for another that is left: the way back ends in a cycle.
  [[noreturn]] void refuse_cycle(int node) const {
    std::vector<int> way;
    while (std::ranges::find(way, node) == way.end()) {
      way.push_back(node);
      for (const Source& one : reads_[at(node)])
        if (one.node != Source::kBatch && place_[at(one.node)] < 0) node = one.node;
    }
    std::string text = "'" + model_.nodes[at(node)].name + "'";
    for (auto step = std::ranges::find(way, node); step != way.end(); ++step) {
      size_t after = static_cast<size_t>(step - way.begin()) + 1;
      text += fmt::format(" reads '{}'", model_.nodes[at(after < way.size() ? way[after] : node)].name);
      if (after < way.size()) text += ", which";
    }
    refuse("its nodes form a cycle: " + text + ".");
  }

  std::vector<int> outputs(const Graph& graph) const {
    std::set<int> read;
    for (const auto& sources : graph.sources)
      for (const Source& one : sources) read.insert(one.node);
    std::vector<int> ends, outputs;
    for (int i = 0; i <= graph.last(); ++i)
      if (!read.contains(i)) ends.push_back(i);
    for (const std::string& name : model_.outputs) {
      outputs.push_back(place_[at(number_of(name, "its outputs name"))]);
      if (std::ranges::count(outputs, outputs.back()) > 1)
        refuse(fmt::format("its outputs name '{}' twice.", name));
    }
    if (outputs.empty() && ends.size() == 1) outputs = ends;
    for (int end : ends)
      if (std::ranges::find(outputs, end) == outputs.end())
        refuse(fmt::format("nobody reads node '{}', and it is no output.", graph.nodes[at(end)].name));
    return outputs;
  }

  const Model& model_;
  std::map<std::string, int> numbers_;
  std::vector<std::vector<Source>> reads_;  // by listed number
  std::vector<int> order_, place_;          // listed numbers in order, and the reverse
};

}  // namespace

std::vector<std::pair<int, int>> Graph::edges() const {
  std::set<std::pair<int, int>> by_reader;
  for (int node = 0; node <= last(); ++node)
    for (const Source& one : sources[static_cast<size_t>(node)])
      if (one.node != Source::kBatch) by_reader.insert({node, one.node});
  for (int output : outputs)
    if (output != last()) by_reader.insert({last(), output});
  std::vector<std::pair<int, int>> edges;
  for (auto [to, from] : by_reader) edges.emplace_back(from, to);
  return edges;
}

bool Graph::reads_batch(int node) const {
  return std::ranges::any_of(sources[static_cast<size_t>(node)],
                             [](const Source& one) { return one.node == Source::kBatch; });
}

Graph graph_of_blocks(const Model& model) {
  Graph graph;
  graph.model = model.name;
  graph.nodes = model.blocks;
  graph.chain = true;
  for (int i = 0; i <= graph.last(); ++i) graph.sources.push_back({{i - 1, Source::kAll}});
  graph.outputs = {graph.last()};
  return graph;
}

Graph graph_of(const Model& model) {
  return model.nodes.empty() ? graph_of_blocks(model) : Resolver(model).resolve();
}

Tensors gather_inputs(const Graph& graph, int node, const Tensors& batch,
                      const std::function<Tensors(int node)>& outputs_of) {
  Tensors inputs;
  for (const Source& one : graph.sources[static_cast<size_t>(node)]) {
    if (one.node == Source::kBatch && one.tensor != Source::kAll) {
      if (static_cast<size_t>(one.tensor) >= batch.size())
        throw ConfigError("model '{}': node '{}' reads tensor {} of the batch, which has {}.", graph.model,
                          graph.nodes[static_cast<size_t>(node)].name, one.tensor, batch.size());
      inputs.push_back(batch[static_cast<size_t>(one.tensor)]);
      continue;
    }
    Tensors all = one.node == Source::kBatch ? batch : outputs_of(one.node);
    inputs.insert(inputs.end(), all.begin(), all.end());
  }
  return inputs;
}

Tensors run_node(const Graph& graph, int node, const Tensors& inputs) {
  const Block& block = graph.nodes[static_cast<size_t>(node)];
  try {
    return block.forward(inputs);
  } catch (const std::out_of_range&) {  // std::vector::at()
    throw ConfigError("model '{}': node '{}' takes more tensors than the {} that its inputs ({}) give.",
                      graph.model, block.name, inputs.size(), join(block.inputs, ", "));
  }
}

Tensors run_graph(const Graph& graph, const Tensors& batch) {
  std::vector<Tensors> values(graph.nodes.size());
  auto outputs_of = [&](int node) { return values[static_cast<size_t>(node)]; };
  for (int node = 0; node <= graph.last(); ++node)
    values[static_cast<size_t>(node)] = run_node(graph, node, gather_inputs(graph, node, batch, outputs_of));
  Tensors outputs;
  for (int node : graph.outputs)
    for (const torch::Tensor& one : outputs_of(node)) outputs.push_back(one);
  return outputs;
}

}  // namespace yoke::models
