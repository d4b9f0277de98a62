#include "yoke/parallel/schedule/parts/parts_strategy.h"

#include "yoke/parallel/schedule/parts/partition_record.h"

namespace yoke::parallel {
namespace {

constexpr size_t kMostInFlight = 64;  // messages of evaluations on their way out

}  // namespace

PipelineLayout layout_of_parts(int parts, int copies) {
  PipelineLayout layout;
  layout.request.stages = parts;
  layout.request.microbatches = 1;
  layout.copies = copies;
  return layout;
}

PartsStrategy::PartsStrategy(const models::Model& model, const GraphParts& parts, PipelineStage& stage,
                             optim::Optimizer& optimizer, optim::GradScaler& scaler, PartsOptions options)
    : PartStrategy(stage, optimizer, scaler,
                   {options.runner.device, options.runner.precision, options.clip_norm, SliceAxis(),
                    options.shards, options.hook}),
      parts_(parts),
      options_(std::move(options)),
      transfers_(stage.world, options_.runner.device),
      runner_(model, parts, stage, scaler, transfers_, options_.runner) {}

ComputeResult PartsStrategy::compute(const std::vector<torch::Tensor>& inputs, const torch::Tensor& target,
                                     const MicroBatch& micro) {
  begin_pass();
  std::vector<torch::Tensor> batch = inputs;
  for (torch::Tensor& input : batch)
    if (reads()) input = options_.place(input);
  torch::Tensor placed = target;
  if (has_loss()) placed = target.to(options_.runner.device, /*non_blocking=*/true);
  ComputeResult result;
  torch::Tensor loss = runner_.forward(batch, placed, shape_signature(inputs, target.size(0), true),
                                       micro.weight / stage_.layout.copies);
  runner_.backward();
  transfers_.settle();
  const double summing = micro.last ? gradients_.finish() : 0;
  result.loss = loss.defined() ? loss.to(torch::kFloat64) : torch::zeros({}, torch::kFloat64);
  const double waited = transfers_.waited() + summing;
  note_waited(waited);
  result.forward_seconds = runner_.seconds(/*backward=*/false);
  result.backward_seconds = runner_.seconds(/*backward=*/true) + waited;  // the engine takes that out again
  end_pass();
  return result;
}

std::vector<torch::Tensor> PartsStrategy::forward(const std::vector<torch::Tensor>& inputs) {
  await_parameters();
  std::vector<torch::Tensor> batch = inputs;
  for (torch::Tensor& input : batch)
    if (reads()) input = options_.place(input);
  std::vector<torch::Tensor> outputs =
      runner_.evaluate(batch, shape_signature(inputs, inputs.at(0).size(0), /*training=*/false));
  transfers_.settle(kMostInFlight);
  return outputs;
}

DataShare PartsStrategy::share() const {
  return {.part = stage_.place.copy,
          .parts = stage_.layout.copies,
          .reads = reads() || has_loss(),
          .together = true};
}

nlohmann::json PartsStrategy::layout() const {
  nlohmann::json parts = nlohmann::json::array(), ranks = nlohmann::json::array();
  for (int part = 0; part < parts_.parts; ++part) {
    parts.push_back(nlohmann::json::array());
    for (int node : parts_.nodes_of(part))
      parts.back().push_back(parts_.graph.nodes[static_cast<size_t>(node)].name);
  }
  for (int rank = 0; rank < stage_.layout.ranks(); ++rank) ranks.push_back(stage_.layout.stage_of_rank(rank));
  return {{"parts", parts}, {"parts_of_ranks", ranks}};
}

RunEnd PartsStrategy::finish(int64_t peak_memory) {
  RunEnd end = Strategy::finish(peak_memory);
  end.reports.push_back({"partition.json", partition_record(parts_, stage_, runner_).dump() + "\n"});
  return end;
}

}  // namespace yoke::parallel
