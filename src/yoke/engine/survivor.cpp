#include "yoke/engine/survivor.h"

#include <cmath>
#include <map>
#include <utility>

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

// Zeros, but for buffers: a forward pass with them gives numbers.
checkpoint::State without_values(const checkpoint::State& state) {
  checkpoint::State zeros = state;
  for (auto& [name, tensor] : zeros.model)
    if (!state.rest.at("buffers").contains(name)) tensor = torch::zeros_like(tensor);
  for (auto& [name, tensor] : zeros.optimizer) tensor = torch::zeros_like(tensor);
  return zeros;
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

Agreement agree_on_state(std::optional<checkpoint::State>& own, comm::Communicator& comm, bool may_follow) {
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
  for (size_t rank = 0; rank < steps.size(); ++rank) {
    auto step = steps[rank].at("step").get<int64_t>();
    if (step == agreed.step) continue;
    agreed.moved = true;
    may_follow = may_follow && step < 0;
    agreed.followers.push_back(static_cast<int>(rank));
  }
  if (!may_follow) agreed.followers.clear();
  // A loss meanwhile must leave `own` as it is: nothing is received in place.
  const bool gives = comm.rank() == agreed.source;
  const bool has = here == agreed.step;
  checkpoint::State state = has ? *own : checkpoint::State{};
  if (agreed.moved) {
    nlohmann::json told = nullptr;
    if (gives)
      told = {{"rest", own->rest}, {"model", outline(own->model)}, {"optimizer", outline(own->optimizer)}};
    told = parallel::gather_json(told, &comm)[static_cast<size_t>(agreed.source)];
    if (!has) state = {laid_out(told.at("model")), laid_out(told.at("optimizer")), told.at("rest")};
  }
  // Replicas have their own statistics; a resumed run has those of one.
  const nlohmann::json names = state.rest.at("buffers");
  Named buffers, others;
  for (const auto& [name, tensor] : state.model)
    if (names.contains(name))
      buffers.emplace_back(name, tensor.clone());
    else
      others.emplace_back(name, tensor);
  if (comm.size() > 1) broadcast(buffers, comm, agreed.source);
  replace(state.model, buffers);
  if (agreed.moved) {
    // Only those behind receive the rest; the others go on meanwhile.
    const bool takes_part = gives || !has;
    const int key = gives ? -1 : comm.rank();
    std::unique_ptr<comm::Communicator> group = comm.split(takes_part ? 0 : -1, key, "state");
    if (group && may_follow) {
      checkpoint::State zeros = has ? state : without_values(state);
      agreed.transfer = std::make_unique<StateTransfer>(std::move(group), std::exchange(state, zeros), names);
    } else if (group) {
      broadcast(others, *group, 0);
      broadcast(state.optimizer, *group, 0);
    }
  }
  own = std::move(state);
  return agreed;
}

}  // namespace yoke::engine
