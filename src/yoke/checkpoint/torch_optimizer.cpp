#include "yoke/checkpoint/torch_optimizer.h"

#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <functional>
#include <map>
#include <memory>

#include "yoke/base/error.h"

namespace yoke::checkpoint {
namespace {

namespace to = torch::optim;
using ParamState = to::OptimizerParamState;

struct TensorField {
  const char* name;
  std::function<torch::Tensor&(ParamState&)> of;
};

// State that one kind of optimizer keeps per parameter.
struct Kind {
  std::function<std::unique_ptr<ParamState>()> make;
  std::function<bool(ParamState&)> is;
  std::vector<TensorField> tensors;
  // nullptr: it counts no steps.
  std::function<int64_t(ParamState&)> get_step;
  std::function<void(ParamState&, int64_t)> set_step;
};

template <class State>
Kind kind_of(std::vector<TensorField> tensors) {
  Kind kind{[] { return std::make_unique<State>(); },
            [](ParamState& state) { return dynamic_cast<State*>(&state) != nullptr; },
            std::move(tensors),
            {},
            {}};
  if constexpr (requires(State & state) { state.step(int64_t{}); }) {
    kind.get_step = [](ParamState& state) { return static_cast<State&>(state).step(); };
    kind.set_step = [](ParamState& state, int64_t step) { static_cast<State&>(state).step(step); };
  }
  return kind;
}

#define YOKE_FIELD(State, field)                                                            \
  TensorField {                                                                             \
#field, [](ParamState & s) -> torch::Tensor& { return static_cast<State&>(s).field(); } \
  }

const Kind& kind_of(to::Optimizer& optimizer) {
  static const Kind sgd = kind_of<to::SGDParamState>({YOKE_FIELD(to::SGDParamState, momentum_buffer)});
  static const Kind adam = kind_of<to::AdamParamState>({YOKE_FIELD(to::AdamParamState, exp_avg),
                                                        YOKE_FIELD(to::AdamParamState, exp_avg_sq),
                                                        YOKE_FIELD(to::AdamParamState, max_exp_avg_sq)});
  static const Kind adamw = kind_of<to::AdamWParamState>({YOKE_FIELD(to::AdamWParamState, exp_avg),
                                                          YOKE_FIELD(to::AdamWParamState, exp_avg_sq),
                                                          YOKE_FIELD(to::AdamWParamState, max_exp_avg_sq)});
  static const Kind adagrad = kind_of<to::AdagradParamState>({YOKE_FIELD(to::AdagradParamState, sum)});
  static const Kind rmsprop = kind_of<to::RMSpropParamState>(
      {YOKE_FIELD(to::RMSpropParamState, square_avg), YOKE_FIELD(to::RMSpropParamState, momentum_buffer),
       YOKE_FIELD(to::RMSpropParamState, grad_avg)});
  if (dynamic_cast<to::SGD*>(&optimizer)) return sgd;
  if (dynamic_cast<to::Adam*>(&optimizer)) return adam;
  if (dynamic_cast<to::AdamW*>(&optimizer)) return adamw;
  if (dynamic_cast<to::Adagrad*>(&optimizer)) return adagrad;
  if (dynamic_cast<to::RMSprop*>(&optimizer)) return rmsprop;
  throw ConfigError(
      "this optimizer's state cannot be saved: of torch::optim SGD, Adam, AdamW, Adagrad and RMSprop can. "
      "Use "
      "one of them, or yoke::optim::make (sgd, adamw, adagrad, lbfgs).");
}

#undef YOKE_FIELD

constexpr const char* kStep = "step";

// Calls `each` with every parameter and its name, "GROUP.PARAMETER".
void for_each_parameter(to::Optimizer& optimizer,
                        const std::function<void(const torch::Tensor&, const std::string&)>& each) {
  for (size_t group = 0; group < optimizer.param_groups().size(); ++group) {
    const auto& parameters = optimizer.param_groups()[group].params();
    for (size_t i = 0; i < parameters.size(); ++i) each(parameters[i], fmt::format("{}.{}", group, i));
  }
}

torch::Tensor like(const torch::Tensor& parameter, const torch::Tensor& saved) {
  torch::Tensor own = torch::empty_like(parameter, parameter.options().dtype(saved.scalar_type()));
  own.copy_(saved);
  return own;
}

}  // namespace

std::vector<NamedTensor> optimizer_state(to::Optimizer& optimizer) {
  const Kind& kind = kind_of(optimizer);
  std::vector<NamedTensor> tensors;
  for_each_parameter(optimizer, [&](const torch::Tensor& parameter, const std::string& place) {
    auto found = optimizer.state().find(parameter.unsafeGetTensorImpl());
    if (found == optimizer.state().end()) return;  // has had no gradient yet
    ParamState& state = *found->second;
    if (kind.get_step)
      tensors.emplace_back(fmt::format("{}/{}", kStep, place),
                           torch::tensor({kind.get_step(state)}, torch::kInt64));
    for (const TensorField& field : kind.tensors)
      if (field.of(state).defined())
        tensors.emplace_back(fmt::format("{}/{}", field.name, place), field.of(state));
  });
  return tensors;
}

void restore_optimizer(to::Optimizer& optimizer, const std::vector<NamedTensor>& saved,
                       const std::string& what) {
  torch::NoGradGuard no_grad;
  const Kind& kind = kind_of(optimizer);
  std::map<std::string, torch::Tensor> left(saved.begin(), saved.end());
  auto take = [&](const std::string& name) {
    auto node = left.extract(name);
    return node.empty() ? torch::Tensor() : node.mapped();
  };
  std::vector<std::pair<void*, std::unique_ptr<ParamState>>> made;
  for_each_parameter(optimizer, [&](const torch::Tensor& parameter, const std::string& place) {
    std::unique_ptr<ParamState> state;
    auto own = [&]() -> ParamState& {
      if (!state) state = kind.make();
      return *state;
    };
    for (const TensorField& field : kind.tensors) {
      std::string name = fmt::format("{}/{}", field.name, place);
      torch::Tensor tensor = take(name);
      if (!tensor.defined()) continue;
      if (tensor.sizes() != parameter.sizes())
        throw CheckpointError("{}: \"{}\" is {} there, and its parameter {} here.", what, name,
                              describe_tensor(tensor), describe_tensor(parameter));
      field.of(own()) = like(parameter, tensor);
    }
    torch::Tensor step = kind.set_step ? take(fmt::format("{}/{}", kStep, place)) : torch::Tensor();
    if (step.defined()) kind.set_step(own(), step.item<int64_t>());
    if (state) made.emplace_back(parameter.unsafeGetTensorImpl(), std::move(state));
  });
  if (!left.empty())
    throw CheckpointError("{}: it holds \"{}\", which this optimizer does not have. Was it another one?",
                          what, left.begin()->first);
  optimizer.state().clear();
  for (auto& [key, state] : made) optimizer.state()[key] = std::move(state);
}

}  // namespace yoke::checkpoint
