// How each kind of thing is tracked.
#include "yoke/base/error.h"
#include "yoke/checkpoint/torch_optimizer.h"
#include "yoke/engine/run.h"
#include "yoke/engine/run_impl.h"

namespace yoke {
namespace {

using engine::NamedTensors;
using engine::Tracked;

NamedTensors with_buffers(torch::nn::Module& module) {
  NamedTensors tensors;
  for (const auto& item : module.named_parameters()) tensors.emplace_back(item.key(), item.value().detach());
  for (const auto& item : module.named_buffers()) tensors.emplace_back(item.key(), item.value());
  return tensors;
}

nlohmann::json learning_rates(torch::optim::Optimizer& optimizer) {
  nlohmann::json rates = nlohmann::json::array();
  for (const auto& group : optimizer.param_groups()) rates.push_back(group.options().get_lr());
  return rates;
}

}  // namespace

void Run::track(const std::string& name, torch::nn::Module& module) {
  Tracked tracked{"module"};
  tracked.in_model = true;
  tracked.tensors = [&module] {
    NamedTensors tensors;
    for (const auto& item : module.named_parameters())
      tensors.emplace_back(item.key(), item.value().detach());
    return tensors;
  };
  tracked.buffers = [&module] {
    NamedTensors tensors;
    for (const auto& item : module.named_buffers()) tensors.emplace_back(item.key(), item.value());
    return tensors;
  };
  tracked.restore = [&module](const NamedTensors& saved, const nlohmann::json&, const std::string& what) {
    checkpoint::restore_into(saved, with_buffers(module), what);
  };
  impl_->add(name, std::move(tracked));
  for (const torch::Tensor& parameter : module.parameters())
    if (parameter.is_cuda()) impl_->device = parameter.device();
}

void Run::track(const std::string& name, torch::optim::Optimizer& optimizer) {
  checkpoint::optimizer_state(optimizer);  // throws for unsupported optimizers here, not at the first save
  Tracked tracked{"torch::optim"};
  tracked.tensors = [&optimizer] { return checkpoint::optimizer_state(optimizer); };
  tracked.values = [&optimizer] { return nlohmann::json{{"lr", learning_rates(optimizer)}}; };
  tracked.restore = [&optimizer](const NamedTensors& saved, const nlohmann::json& values,
                                 const std::string& what) {
    const nlohmann::json& rates = values.at("lr");
    if (rates.size() != optimizer.param_groups().size())
      throw CheckpointError("{}: it has {} groups of parameters there and {} here.", what, rates.size(),
                            optimizer.param_groups().size());
    checkpoint::restore_optimizer(optimizer, saved, what);
    for (size_t i = 0; i < rates.size(); ++i) optimizer.param_groups()[i].options().set_lr(rates[i]);
  };
  impl_->add(name, std::move(tracked));
}

void Run::track(const std::string& name, optim::Optimizer& optimizer) {
  Tracked tracked{"optimizer"};
  tracked.tensors = [&optimizer] { return optimizer.state(); };
  tracked.restore = [&optimizer](const NamedTensors& saved, const nlohmann::json&, const std::string& what) {
    checkpoint::restore_into(saved, optimizer.state(), what);
  };
  impl_->add(name, std::move(tracked));
}

void Run::track(const std::string& name, optim::GradScaler& scaler) {
  Tracked tracked{"scaler"};
  tracked.values = [&scaler] {
    return nlohmann::json{{"scale", scaler.current_scale()}, {"growth_tracker", scaler.growth_tracker()}};
  };
  tracked.restore = [&scaler](const NamedTensors&, const nlohmann::json& values, const std::string&) {
    scaler.restore(values.at("scale"), values.at("growth_tracker"));
  };
  impl_->add(name, std::move(tracked));
}

void Run::track(const std::string& name, data::Loader& loader) {
  Tracked tracked{"data"};
  tracked.values = [&loader] {
    data::Position at = loader.position();
    return nlohmann::json{{"epoch", at.epoch}, {"sample", at.sample}};
  };
  tracked.restore = [&loader](const NamedTensors&, const nlohmann::json& values, const std::string&) {
    loader.seek({values.at("epoch"), values.at("sample")});
  };
  impl_->add(name, std::move(tracked));
}

void Run::track(const std::string& name, Resumable& state) {
  Tracked tracked{"state"};
  tracked.values = [&state] { return state.state(); };
  tracked.restore = [&state](const NamedTensors&, const nlohmann::json& values, const std::string&) {
    state.restore(values);
  };
  impl_->add(name, std::move(tracked));
}

void Run::track(const std::string& name, int64_t& counter) {
  Tracked tracked{"counter"};
  tracked.values = [&counter] { return nlohmann::json(counter); };
  tracked.restore = [&counter](const NamedTensors&, const nlohmann::json& values, const std::string&) {
    counter = values.get<int64_t>();
  };
  impl_->add(name, std::move(tracked));
}

void Run::track(const std::string& name, torch::Tensor tensor) {
  Tracked tracked{"tensor"};
  tracked.tensors = [tensor] { return NamedTensors{{"value", tensor.detach()}}; };
  tracked.restore = [tensor](const NamedTensors& saved, const nlohmann::json&, const std::string& what) {
    checkpoint::restore_into(saved, {{"value", tensor.detach()}}, what);
  };
  impl_->add(name, std::move(tracked));
}

}  // namespace yoke
