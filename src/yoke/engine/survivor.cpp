#include "yoke/engine/survivor.h"

#include <cmath>
#include <map>

#include "yoke/base/error.h"
#include "yoke/comm/tensors/tensors.h"
#include "yoke/compute/conv_path.h"
#include "yoke/parallel/common/gather_json.h"

namespace yoke::engine {
namespace {

using Named = std::vector<optim::NamedTensor>;

void broadcast(Named& tensors, comm::Communicator& comm, int root) {
  for (auto& [name, tensor] : tensors) comm::broadcast(comm, tensor, root, name.substr(0, 40));
}

void replace(Named& tensors, const Named& by) {
  std::map<std::string, torch::Tensor> others(by.begin(), by.end());
  for (auto& [name, tensor] : tensors)
    if (auto found = others.find(name); found != others.end()) tensor = found->second;
}

}  // namespace

nlohmann::json outline(const Named& tensors) {
  nlohmann::json list = nlohmann::json::array();
  for (const auto& [name, tensor] : tensors)
    list.push_back({{"name", name},
                    {"shape", tensor.sizes().vec()},
                    {"type", static_cast<int>(tensor.scalar_type())},
                    {"device", tensor.device().str()}});
  return list;
}

Named laid_out(const nlohmann::json& list) {
  Named tensors;
  for (const nlohmann::json& one : list)
    tensors.emplace_back(one.at("name"),
                         torch::empty(one.at("shape").get<std::vector<int64_t>>(),
                                      torch::TensorOptions().dtype(
                                          static_cast<torch::ScalarType>(one.at("type").get<int>()))));
  return tensors;
}

StepKeeper::StepKeeper(Worker& worker, const data::Loader& loader, const Engine& engine)
    : worker_(worker), loader_(loader), engine_(engine) {
  position_ = loader.position();
  copy_buffers();
}

void StepKeeper::tick(int64_t, double) {
  position_ = loader_.position();
  copy_buffers();
}

void StepKeeper::copy_buffers() {
  torch::NoGradGuard no_grad;
  const bool first = buffers_.empty();
  size_t i = 0;
  for (const auto& item : worker_.model.module->named_buffers()) {
    if (first)
      buffers_.emplace_back(item.key(), item.value().clone());
    else
      buffers_[i++].second.copy_(item.value());
  }
}

checkpoint::State StepKeeper::state(const std::string& configuration) {
  checkpoint::State state = state_here(worker_);
  replace(state.model, buffers_);
  nlohmann::json names = nlohmann::json::object();
  for (const auto& [name, tensor] : buffers_) names[name] = true;
  state.rest = rest_of(engine_.finished(), position_, worker_);
  state.rest["configuration"] = configuration;
  state.rest["buffers"] = std::move(names);
  return state;
}

nlohmann::json rest_of(const Finished& at, const data::Position& position, const Worker& worker) {
  return {
      {"regrouped", true},
      {"step", at.step},
      {"samples", at.samples},
      {"position", {{"epoch", position.epoch}, {"sample", position.sample}}},
      {"loss", std::isfinite(at.loss) ? nlohmann::json(at.loss) : nullptr},
      {"scaler",
       {{"scale", worker.scaler.current_scale()}, {"growth_tracker", worker.scaler.growth_tracker()}}},
      {"ranks", nlohmann::json::array()},
      {"replicas", worker.strategy->share().parts},
      {"tuning", compute::ConvChoices::global().to_json()},
  };
}

Agreement agree_on_state(std::optional<checkpoint::State>& own, comm::Communicator& comm) {
  torch::NoGradGuard no_grad;
  const int64_t here = own ? own->rest.at("step").get<int64_t>() : -1;
  const nlohmann::json steps = parallel::gather_json({{"step", here}}, &comm);
  Agreement agreed;
  agreed.step = -1;
  for (size_t rank = 0; rank < steps.size(); ++rank) {
    auto step = steps[rank].at("step").get<int64_t>();
    if (step > agreed.step) agreed.source = static_cast<int>(rank);
    agreed.step = std::max(agreed.step, step);
  }
  if (agreed.source < 0) return agreed;
  for (const nlohmann::json& one : steps) agreed.moved = agreed.moved || one.at("step") != agreed.step;
  // A loss meanwhile must leave `own` as it is: nothing is received in place.
  const bool gives = comm.rank() == agreed.source;
  if (!agreed.moved) {
    // Replicas have their own statistics; a resumed run has those of one.
    Named buffers;
    for (const auto& [name, tensor] : own->model)
      if (own->rest.at("buffers").contains(name)) buffers.emplace_back(name, tensor.clone());
    if (comm.size() > 1) broadcast(buffers, comm, agreed.source);
    replace(own->model, buffers);
    return agreed;
  }
  nlohmann::json told = nullptr;
  if (gives)
    told = {{"rest", own->rest}, {"model", outline(own->model)}, {"optimizer", outline(own->optimizer)}};
  told = parallel::gather_json(told, &comm)[static_cast<size_t>(agreed.source)];
  checkpoint::State state =
      gives ? *own
            : checkpoint::State{laid_out(told.at("model")), laid_out(told.at("optimizer")), told.at("rest")};
  broadcast(state.model, comm, agreed.source);
  broadcast(state.optimizer, comm, agreed.source);
  own = std::move(state);
  return agreed;
}

}  // namespace yoke::engine
