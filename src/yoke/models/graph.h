// A model as a graph: nodes that name what they read. What parallel.partition distributes.
//
// A chain of blocks is the graph in which each block reads the one before. A node must not change its inputs:
// others may read them.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "yoke/models/model.h"

namespace yoke::models {

// Where tensors of a node come from: all outputs of another node, or a tensor of the batch.
struct Source {
  static constexpr int kBatch = -1, kAll = -1;
  int node = kBatch;
  int tensor = kAll;  // of the batch
  bool operator==(const Source&) const = default;
};

struct Graph {
  std::string model;                         // its name, for errors
  std::vector<Block> nodes;                  // in an order of execution
  std::vector<std::vector<Source>> sources;  // of each node
  std::vector<int> outputs;                  // nodes whose outputs the loss takes, in its order
  bool chain = false;                        // each node reads the one before

  // The loss is computed with the last node, which is an output and which no other node reads.
  int last() const { return static_cast<int>(nodes.size()) - 1; }
  // From a node to one that reads it, each once, sorted by reader; the last node reads all outputs.
  std::vector<std::pair<int, int>> edges() const;
  bool reads_batch(int node) const;
};

// The model's nodes, or its blocks as a chain. Throws ConfigError that names the node: two of one name, an
// input that is no node, a cycle, nothing read, an output that nobody reads or that does not exist.
Graph graph_of(const Model& model);
// Its blocks, whatever its nodes.
Graph graph_of_blocks(const Model& model);

// The tensors of a node's sources, one after the other: of `batch`, and of `outputs_of(node)`. Throws
// ConfigError for a tensor that the batch does not have.
Tensors gather_inputs(const Graph& graph, int node, const Tensors& batch,
                      const std::function<Tensors(int node)>& outputs_of);

// Runs the node. Throws ConfigError where it asks for more tensors than it declares.
Tensors run_node(const Graph& graph, int node, const Tensors& inputs);

// Runs all nodes in order; the model's outputs.
Tensors run_graph(const Graph& graph, const Tensors& batch);

// The graph as a chain, for strategies that know no other: a block for each node, between which everything
// travels that later ones read. Each node gives one tensor.
std::vector<Block> chain_of(const Graph& graph);

}  // namespace yoke::models
