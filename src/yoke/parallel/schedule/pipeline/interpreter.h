// Executes a schedule's list of actions on this rank. One thread.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "yoke/parallel/common/transfers.h"
#include "yoke/parallel/placement/stage/layout.h"
#include "yoke/parallel/placement/stage/weight_versions.h"
#include "yoke/parallel/schedule/pipeline/stage_runner.h"
#include "yoke/plan/schedules/stream.h"

namespace yoke::parallel {

// A batch, divided into the micro-batches that pass through the stages.
struct MicroBatches {
  struct Part {
    std::vector<torch::Tensor> inputs;  // if this rank has the first stage
    torch::Tensor target;               // if this rank has the last stage
    double weight = 0;                  // of its loss in the gradient
    double share = 0;                   // of its loss in the batch's loss
    std::vector<int64_t> shape;         // parts with equal signatures have equal shapes at every boundary
  };
  int first = 0;  // index of parts[0] in the schedule
  std::vector<Part> parts;
};

// What was executed when, for timelines.
struct PipelineEvent {
  plan::ScheduleOp op = plan::ScheduleOp::kForward;
  int microbatch = 0;  // as counted by the schedule
  int chunk = 0;
  double start = 0;  // now_seconds()
  double end = 0;
};

class Interpreter {
 public:
  struct Updates {
    std::function<void(const plan::StreamAction&)> update;  // executes an update, or enqueues it
    std::function<void(int version)> need;    // a pass requires a weight version that does not exist yet
    std::function<void(int chunk)> complete;  // all passes that contribute to the chunk's gradients are done
  };

  // All arguments must outlive it.
  Interpreter(const PipelineLayout& layout, PipelinePlace place, StageRunner& runner,
              WeightVersions& versions, Transfers& transfers);

  // Forward actions in the list refer to `batch`. Returns this rank's share of the batch's loss (0 without
  // the last stage).
  torch::Tensor run(const std::vector<plan::StreamAction>& actions, const MicroBatches& batch,
                    const Updates& updates);
  // Runs one batch forward through all stages, without a graph. Returns the model's outputs on the last
  // stage, nothing elsewhere. `shape` as in MicroBatches.
  std::vector<torch::Tensor> evaluate(const std::vector<torch::Tensor>& inputs,
                                      const std::vector<int64_t>& shape);

  // Of the last run().
  const std::vector<PipelineEvent>& events() const { return events_; }
  double seconds(plan::ScheduleOp op) const;

 private:
  using Tensors = std::vector<torch::Tensor>;
  using Shape = std::vector<int64_t>;
  using SpecKey = std::tuple<int, int, Shape>;  // boundary, peer, shape

  void carry_out(const plan::ScheduleAction& action, const MicroBatches& batch, torch::Tensor& loss);
  void forward(const plan::ScheduleAction& action, const MicroBatches& batch, torch::Tensor& loss);
  void backward(const plan::ScheduleAction& action);
  void send_outputs(int chunk, int peer, const Tensors& outputs, const Shape& shape, const std::string& name);
  // Posts receives for the next actions, two ahead in each direction.
  void look_ahead(const std::vector<plan::StreamAction>& actions, size_t from);
  bool expect(const plan::ScheduleAction& action, bool must);
  Tensors arrived(const Transfers::Key& where);

  Line line(const plan::ScheduleAction& action) const;
  Transfers::Key key(const plan::ScheduleAction& action) const;
  std::string name(const plan::ScheduleAction& action, bool sending) const;

  const PipelineLayout& layout_;
  PipelinePlace place_;
  StageRunner& runner_;
  WeightVersions& versions_;
  Transfers& transfers_;
  std::map<SpecKey, BoundarySpec> specs_;                        // of incoming boundaries
  std::map<SpecKey, BoundarySpec> own_specs_;                    // of outgoing boundaries
  std::map<std::pair<int, int>, BoundarySpec> specs_of_inputs_;  // of requested inputs
  std::map<Transfers::Key, Tensors> arrived_;
  std::map<int, Shape> shapes_;                            // of micro-batches in flight
  std::map<std::pair<int, int>, Tensors> outputs_, back_;  // to be sent, by chunk and micro-batch
  std::vector<PipelineEvent> events_;
  int evaluated_ = 0;
};

}  // namespace yoke::parallel
