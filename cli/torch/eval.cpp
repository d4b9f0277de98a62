#include <fmt/core.h>

#include <cmath>

#include "cli/output.h"
#include "cli/run_config.h"
#include "cli/torch/commands.h"
#include "yoke/base/error.h"
#include "yoke/base/text.h"
#include "yoke/checkpoint/tensors.h"
#include "yoke/engine/evaluate.h"
#include "yoke/engine/worker.h"

namespace yoke::cli {
namespace {

// The tensors a model takes, by the names scripts give them.
std::vector<std::string> input_names(const models::Model& model) {
  switch (model.sample.kind) {
    case SampleKind::kTokens:
      return {"input_ids"};
    case SampleKind::kSparse:
      return {"indices", "values", "offsets"};
    case SampleKind::kVideo:
      return {"input", "input_ids"};
    default:
      return {"input"};
  }
}

models::Tensors read_inputs(const engine::Worker& worker, const std::string& path) {
  const models::Model& model = worker.model;
  models::Tensors inputs;
  auto tensors = checkpoint::load_tensors(path).tensors;
  for (const std::string& name : input_names(model)) {
    auto found =
        std::find_if(tensors.begin(), tensors.end(), [&](const auto& item) { return item.first == name; });
    if (found == tensors.end()) {
      throw ConfigError("{}: no tensor `{}`. `yoke eval` of {} takes: {}.", path, name, model.name,
                        join(input_names(model)));
    }
    const torch::Tensor& tensor = found->second;
    inputs.push_back(worker.place(tensor.to(tensor.is_floating_point() ? torch::kFloat : torch::kLong)));
  }
  return inputs;
}

}  // namespace

int run_eval(const CommandLine& line) {
  Configuration configuration;
  configuration.load(line.eval.file, line.overrides);
  const RunConfig& config = configuration.values;
  engine::WorkerOptions options;
  options.model = config.model;
  options.optimizer = config.train.optimizer;
  options.compute = config.train.compute;
  options.compute.recompute = "none";
  options.batch_size = config.data.batch_size;
  options.seed = config.train.loop.seed;
  options.init = line.eval.init;
  auto worker = engine::make_worker(options);
  worker->model.module->eval();

  nlohmann::json result = {{"model", config.model.name}};
  if (!line.eval.inputs.empty()) {
    torch::NoGradGuard no_grad;
    AutocastGuard autocast(worker->device.type(), worker->autocast);
    models::Tensors outputs = worker->model.forward(read_inputs(*worker, line.eval.inputs));
    result["shape"] = outputs[0].sizes().vec();
    if (!line.eval.outputs.empty()) {
      checkpoint::save_tensors(line.eval.outputs,
                               {{"output", outputs[0].to(torch::kFloat).cpu().contiguous()}}, {});
      result["outputs"] = line.eval.outputs;
    }
  } else {
    auto dataset = data::open(config.data, data::Split::kTest, worker->model.sample,
                              static_cast<uint64_t>(options.seed));
    engine::Evaluation evaluation =
        *engine::evaluate(*worker, *dataset, config.data.batch_size, [] { return false; });
    result["loss"] = evaluation.loss;
    if (worker->model.sample.kind == SampleKind::kTokens) result["perplexity"] = std::exp(evaluation.loss);
    result["samples"] = evaluation.samples;
    if (evaluation.accuracy) result["accuracy"] = *evaluation.accuracy;
    if (evaluation.classes.top5) result["top5_accuracy"] = *evaluation.classes.top5;
    if (evaluation.classes.results && line.json)
      result["classes"] = nlohmann::json(metrics::to_json(*evaluation.classes.results));
  }
  if (line.json) {
    print_json(result);
  } else {
    for (const auto& [key, value] : result.items())
      fmt::print("{:<10} {}\n", key, value.is_string() ? value.get<std::string>() : value.dump());
  }
  return 0;
}

}  // namespace yoke::cli
