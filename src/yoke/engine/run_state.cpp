#include "yoke/engine/run_state.h"

#include "yoke/base/error.h"
#include "yoke/checkpoint/random_state.h"
#include "yoke/checkpoint/weights.h"
#include "yoke/compute/conv_path.h"

namespace yoke::engine {

std::vector<optim::NamedTensor> named_tensors(const torch::nn::Module& module) {
  std::vector<optim::NamedTensor> tensors;
  for (const auto& item : module.named_parameters()) tensors.emplace_back(item.key(), item.value().detach());
  for (const auto& item : module.named_buffers()) tensors.emplace_back(item.key(), item.value());
  return tensors;
}

checkpoint::State collect_state(Worker& worker, const data::Loader& loader, Progress progress,
                                const std::string& configuration) {
  data::Position position = loader.position();
  checkpoint::State state;
  state.model = named_tensors(*worker.model.module);
  state.optimizer = worker.optimizer->state();
  state.rest = {
      {"step", progress.step},
      {"samples", progress.samples},
      {"position", {{"epoch", position.epoch}, {"batch", position.batch}}},
      {"scaler",
       {{"scale", worker.scaler.current_scale()}, {"growth_tracker", worker.scaler.growth_tracker()}}},
      {"random", checkpoint::random_state(worker.device)},
      {"tuning", compute::ConvChoices::global().to_json()},
      {"configuration", configuration},
  };
  return state;
}

Progress restore_state(const checkpoint::Loaded& loaded, Worker& worker, data::Loader& loader) {
  torch::NoGradGuard no_grad;
  if (loaded.state.rest.contains("weights_only")) {  // made by `yoke ckpt import`
    checkpoint::copy_weights(loaded.state.model, named_tensors(*worker.model.module), loaded.path.string());
    return {};
  }
  checkpoint::restore_into(loaded.state.model, named_tensors(*worker.model.module),
                           loaded.path.string() + ", model");
  checkpoint::restore_into(loaded.state.optimizer, worker.optimizer->state(),
                           loaded.path.string() + ", optimizer");
  const nlohmann::json& rest = loaded.state.rest;
  try {
    worker.scaler.restore(rest.at("scaler").at("scale"), rest.at("scaler").at("growth_tracker"));
    checkpoint::set_random_state(rest.at("random"), worker.device);
    compute::ConvChoices::global().import_json(rest.at("tuning"));
    loader.seek({rest.at("position").at("epoch"), rest.at("position").at("batch")});
    return {rest.at("step"), rest.at("samples")};
  } catch (const nlohmann::json::exception& error) {
    throw CheckpointError(
        "{}: its state lacks a field ({}). It was written by another version; start with --resume never.",
        loaded.path.string(), error.what());
  }
}

}  // namespace yoke::engine
