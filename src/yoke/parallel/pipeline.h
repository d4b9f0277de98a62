// A pipeline for your own training loop: one stage of the model per rank.
//
//   yoke::Pipeline pipeline(model, {torch::randn({1, 16})}, world.comm(), options);
//   for (…) double loss = pipeline.step({inputs}, target, lr);
#pragma once

#include <memory>

#include "yoke/comm/communicator.h"
#include "yoke/models/model.h"
#include "yoke/optim/options.h"
#include "yoke/parallel/placement/stage/options.h"

namespace yoke::parallel {

struct OwnPipelineOptions : PipelineOptions {
  optim::OptimizerOptions optimizer;
  int64_t batch_size = 64;  // samples per step(), which are split into micro-batches
  int64_t copies = 1;       // of the pipeline, each with its own batches; gradients are averaged
  torch::Device device = torch::kCPU;
};

class Pipeline {
 public:
  // Divides the model into comm.size() / copies stages, balanced by work; `sample` are the inputs of one
  // sample, the same on every rank. Weights are those of rank 0's model. Collective. `comm` must outlive it.
  // Throws ConfigError for invalid numbers of stages or micro-batches.
  Pipeline(models::Model model, models::Tensors sample, comm::Communicator& comm,
           OwnPipelineOptions options = {});
  ~Pipeline();

  // One step on one batch: all micro-batches forward and backward, then the update. All ranks of a copy pass
  // the same batch. Returns the mean loss over all copies, on every rank. Collective. Schedules without a
  // flush return the loss of an earlier batch; drain() completes what is in flight.
  double step(const models::Tensors& inputs, const torch::Tensor& target, double lr);
  void drain();

  // The outputs of the last block, on the ranks of the last stage; empty elsewhere. Collective.
  models::Tensors forward(const models::Tensors& inputs);

  int stage() const;  // of this rank
  int stages() const;
  int64_t copy() const;  // which part of the data this rank reads, of options.copies
  // The parameters of this rank, by name.
  std::vector<std::pair<std::string, torch::Tensor>> parameters() const;

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace yoke::parallel
