// Carries out a schedule's list of actions on this rank.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "yoke/parallel/pipeline/layout.h"
#include "yoke/parallel/pipeline/stage_runner.h"
#include "yoke/parallel/pipeline/transfers.h"
#include "yoke/parallel/pipeline/weight_versions.h"
#include "yoke/plan/schedules/stream.h"

namespace yoke::parallel {

// A batch in the parts that follow each other through the stages.
struct MicroBatches {
  struct Part {
    std::vector<torch::Tensor> inputs;  // where the first stage is here
    torch::Tensor target;               // where the last stage is here
    double weight = 0;                  // of its loss in the gradient
    double share = 0;                   // of its loss in the batch's
    std::vector<int64_t> shape;         // parts of the same shape have the same shapes everywhere
  };
  int first = 0;  // number of parts[0] in the schedule
  std::vector<Part> parts;
};

// What was done when, for pictures.
struct PipelineEvent {
  plan::ScheduleOp op = plan::ScheduleOp::kForward;
  int microbatch = 0;  // as the schedule counts
  int chunk = 0;
  double start = 0;  // now_seconds()
  double end = 0;
};

class Interpreter {
 public:
  struct Updates {
    std::function<void(const plan::StreamAction&)> update;  // carries one out, or takes it on
    std::function<void(int version)> need;                  // a pass comes for weights that are not there yet
    std::function<void(int chunk)> complete;  // all passes that add to the chunk's gradients are done
  };

  // All must outlive it.
  Interpreter(const PipelineLayout& layout, PipelinePlace place, StageRunner& runner,
              WeightVersions& versions, Transfers& transfers);

  // Forward actions in the list are for `batch`. Returns this rank's share of the batch's loss (0 where the
  // last stage is elsewhere).
  torch::Tensor run(const std::vector<plan::StreamAction>& actions, const MicroBatches& batch,
                    const Updates& updates);
  // Runs one batch forward through all stages, without a graph. Returns the model's outputs on the last
  // stage, and nothing elsewhere. `shape` as in MicroBatches.
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
  // Asks for what the next actions will receive; two ahead in each direction.
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
  std::map<SpecKey, BoundarySpec> specs_;                        // of boundaries in front of us
  std::map<SpecKey, BoundarySpec> own_specs_;                    // behind us
  std::map<std::pair<int, int>, BoundarySpec> specs_of_inputs_;  // that were asked for
  std::map<Transfers::Key, Tensors> arrived_;
  std::map<int, Shape> shapes_;                            // of micro-batches under way
  std::map<std::pair<int, int>, Tensors> outputs_, back_;  // to be sent, by chunk and micro-batch
  std::vector<PipelineEvent> events_;
  int evaluated_ = 0;
};

}  // namespace yoke::parallel
