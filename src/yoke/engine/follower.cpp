#include "yoke/engine/follower.h"

#include <algorithm>
#include <utility>

#include "yoke/base/fault.h"
#include "yoke/comm/tensors/tensors.h"
#include "yoke/engine/state_pieces.h"

namespace yoke::engine {

StateTransfer::StateTransfer(std::unique_ptr<comm::Communicator> group, checkpoint::State state,
                             const nlohmann::json& sent)
    : state_(std::move(state)), group_(std::move(group)) {
  for (auto* list : {&state_.model, &state_.optimizer})
    for (auto& [name, tensor] : *list) {
      if (list == &state_.model && sent.contains(name)) continue;
      tensor = tensor.contiguous();
      pending_.push_back(group_->broadcast(tensor, 0, {.name = name.substr(0, 40)}));
    }
  fault::at(fault::Point::kElasticState);
}

bool StateTransfer::done() const {
  return std::ranges::all_of(pending_, [](const comm::Pending& one) { return one.done(); });
}

void StateTransfer::wait() const {
  for (const comm::Pending& one : pending_) one.wait();
}

Follower::Follower(std::unique_ptr<parallel::Strategy> strategy, Worker& worker,
                   const StateTransfer& transfer)
    : Forwarding(std::move(strategy)),
      worker_(worker),
      transfer_(transfer),
      parameters_(worker.model.module->parameters()) {}

parallel::CommitResult Follower::commit(const parallel::CommitOptions& options) {
  if (!behind_) return inner->commit(options);
  Update update{options, {}};
  for (const torch::Tensor& parameter : parameters_)
    update.gradients.push_back(parameter.grad().defined() ? parameter.grad().clone() : torch::Tensor());
  updates_.push_back(std::move(update));
  if (transfer_.done()) catch_up();
  return {};
}

void Follower::drain() {
  inner->drain();
  if (behind_) catch_up();
}

void Follower::catch_up() {
  torch::NoGradGuard no_grad;
  transfer_.wait();
  restore_pieces(transfer_.state(), worker_, "the state of another rank");
  for (const Update& update : std::exchange(updates_, {})) {
    for (size_t i = 0; i < parameters_.size(); ++i) parameters_[i].mutable_grad() = update.gradients[i];
    inner->commit(update.options);
  }
  behind_ = false;
}

}  // namespace yoke::engine
