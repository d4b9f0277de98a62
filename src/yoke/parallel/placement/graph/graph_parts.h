// Part of a graph as a placement: which nodes of a model that is no chain each rank of the pipeline axis
// holds, and what crosses between parts.
//
// A node's outputs cross once for each other part that reads them, however many nodes there do; their
// gradients come back the same way.
#pragma once

#include <vector>

#include "yoke/models/graph.h"
#include "yoke/parallel/common/owned_tensors.h"

namespace yoke::parallel {

struct GraphParts {
  models::Graph graph;
  std::vector<int> part_of;  // of each node
  int parts = 1;

  bool holds(int part, int node) const { return part_of[static_cast<size_t>(node)] == part; }
  // The nodes of a part, in the global order of execution.
  std::vector<int> nodes_of(int part) const;
  // Parts other than its own that read the node, ascending.
  std::vector<int> readers_of(int node) const;
  // Nodes of other parts that `part` reads, in order.
  std::vector<int> reads_of(int part) const;
  // The first node of `part`, in order, that reads `node`.
  int first_reader(int part, int node) const;
  // Whether a node of the part reads the batch.
  bool reads_batch(int part) const;
  // The loss is computed here.
  int last_part() const { return part_of.back(); }
};

// `part_of`: of each node, as plan::parts_of_nodes() or a partitioner gives it. Throws ConfigError where it
// does not fit the graph: another number of nodes, a part without any.
GraphParts make_parts(const models::Model& model, std::vector<int> part_of, int parts);

// Every parameter and buffer of the model, with the parts whose nodes use it.
std::vector<OwnedTensor> owned_tensors(const models::Model& model, const GraphParts& parts);

// "part 0: stem, Mixed_5b and 3 more; part 1: …"
std::string to_string(const GraphParts& parts);

}  // namespace yoke::parallel
