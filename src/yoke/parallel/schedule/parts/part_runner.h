// Forward and backward of the nodes that this rank holds, in the global order of the graph.
//
// Protocol. Every rank runs its nodes in the one order that all know. What a node gives is sent at once, once
// to each part that reads it; what a node reads from elsewhere is waited for just before it runs. Backward
// goes the same way in reverse: a node waits for the gradients of all parts that read it, and the gradient of
// what came from elsewhere leaves after the last node that adds to it. Sends do not wait, and a rank waits
// only for nodes that come earlier in the order, so that no cycle of waits is possible. Shapes travel ahead
// of the first tensors of each kind of batch; from then on receives are posted at the start of a pass.
#pragma once

#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "yoke/compute/precision.h"
#include "yoke/optim/grad_scaler.h"
#include "yoke/parallel/common/transfers.h"
#include "yoke/parallel/placement/graph/graph_parts.h"
#include "yoke/parallel/placement/stage/stage.h"

namespace yoke::parallel {

struct PartRunnerOptions {
  torch::Device device = torch::kCPU;
  Precision precision = Precision::kFp32;  // of autocast
  bool recompute = false;                  // nodes run again in backward
};

// A node's forward or backward, for pictures.
struct NodeEvent {
  int node = 0;
  bool backward = false;
  double start = 0, end = 0;  // now_seconds()
};

// What a node gave to another part, in bytes of one pass.
struct CutEdge {
  int node = 0;
  int part = 0;  // that reads it
  int64_t bytes = 0;
  bool operator==(const CutEdge&) const = default;
};

class PartRunner {
 public:
  using Tensors = std::vector<torch::Tensor>;
  using Shape = std::vector<int64_t>;

  // All must outlive it.
  PartRunner(const models::Model& model, const GraphParts& parts, const PipelineStage& stage,
             const optim::GradScaler& scaler, Transfers& transfers, PartRunnerOptions options);

  // `batch` is on the device where this part reads it. `shape`: shape_signature() of it. Returns the mean
  // loss, detached, where the loss is here, and nothing elsewhere; backward() then adds `weight` times its
  // gradient.
  torch::Tensor forward(const Tensors& batch, const torch::Tensor& target, const Shape& shape, double weight);
  void backward();
  // No graph, nothing kept. The model's outputs where the loss is here, nothing elsewhere.
  Tensors evaluate(const Tensors& batch, const Shape& shape);

  // Of the last forward() and backward().
  const std::vector<NodeEvent>& events() const { return events_; }
  const std::vector<CutEdge>& sent() const { return sent_; }            // activations
  const std::vector<CutEdge>& sent_back() const { return sent_back_; }  // gradients; `part` holds the node
  double seconds(bool backward) const;

 private:
  struct Values {
    Tensors outputs;  // of a node that is here, with their graph
    Tensors leaves;   // what other nodes read: no graph behind it, gradients add up in it
  };
  using SpecKey = std::pair<int, Shape>;

  void run_forward(const Tensors& batch, const Shape& shape, bool training);
  Tensors run(int node, const Tensors& inputs) const;
  void expect_inputs(const Shape& shape);
  void receive(int node, const Shape& shape);
  void send(int node, const Shape& shape, bool counts);
  Tensors outputs() const;
  void expect_gradients();
  void run_backward(int node);
  Tensors gradients_of(int node, const Tensors& roots);
  void send_back(int node);
  int rank_of(int part) const { return stage_.layout.rank_of(part, stage_.place.copy); }
  int part_of(int node) const { return parts_.part_of[static_cast<size_t>(node)]; }
  std::string name(const char* what, int node, int from, int to) const;

  const models::Model& model_;
  const GraphParts& parts_;
  const PipelineStage& stage_;
  const optim::GradScaler& scaler_;
  Transfers& transfers_;
  PartRunnerOptions options_;
  int part_;
  std::vector<int> nodes_;                     // held here
  std::vector<std::vector<int>> remote_;       // [node]: nodes elsewhere that it reads
  std::vector<std::vector<int>> readers_;      // [node]: other parts that read it
  std::map<int, int> first_reader_;            // of each node elsewhere
  std::vector<torch::Tensor> batch_counters_;  // of BatchNorm layers
  std::map<SpecKey, BoundarySpec> specs_;      // of nodes elsewhere
  std::map<SpecKey, BoundarySpec> own_specs_;  // that were sent
  Shape shape_;                                // of the pass
  std::map<int, Values> values_;
  torch::Tensor loss_;
  std::vector<NodeEvent> events_;
  std::vector<CutEdge> sent_, sent_back_;
};

}  // namespace yoke::parallel
