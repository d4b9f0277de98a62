#include "yoke/parallel/placement/spare/spare.h"

#include "yoke/comm/tensors/tensors.h"
#include "yoke/parallel/common/gather_json.h"
#include "yoke/parallel/common/step_news.h"

namespace yoke::parallel {
namespace {

constexpr int kTeller = 0;  // a rank that computes

// Every rank must know of an update that was not made: one that only some report would leave the others
// waiting, or alone.
bool share_updated(bool updated, comm::Communicator& everyone, torch::Device device) {
  torch::Tensor all = torch::full({1}, updated ? 1.0F : 0.0F, torch::TensorOptions().device(device));
  comm::broadcast(everyone, all, kTeller, "whether the step was made");
  return all.cpu().item<float>() != 0;
}

std::string share_name(const std::string& name, comm::Communicator& everyone) {
  return gather_json(name, &everyone)[kTeller].get<std::string>();
}

std::optional<std::string> unless_empty(std::string name) {
  return name.empty() ? std::nullopt : std::optional(std::move(name));
}

}  // namespace

StepNews BesideSpares::agree(const StepNews& here) {
  return reduce_news(here, everyone_, device_, static_cast<double>(inner->share().parts));
}

CommitResult BesideSpares::commit(const CommitOptions& options) {
  CommitResult result = inner->commit(options);
  share_updated(result.updated, everyone_, device_);
  return result;
}

std::optional<std::string> BesideSpares::first_non_finite_gradient() {
  return unless_empty(share_name(inner->first_non_finite_gradient().value_or(""), everyone_));
}

RunEnd BesideSpares::finish(int64_t peak_memory) {
  RunEnd end = inner->finish(peak_memory);
  end.peak_memory = Strategy::finish(peak_memory).peak_memory;
  return end;
}

ComputeResult Spare::compute(const std::vector<torch::Tensor>&, const torch::Tensor&, const MicroBatch&) {
  ComputeResult nothing;
  nothing.loss = torch::zeros({}, torch::TensorOptions().device(device_));
  return nothing;
}

CommitResult Spare::commit(const CommitOptions&) {
  CommitResult result;
  result.updated = share_updated(true, everyone_, device_);
  return result;
}

std::optional<std::string> Spare::first_non_finite_gradient() {
  return unless_empty(share_name("", everyone_));
}

StepNews Spare::agree(const StepNews& here) {
  return reduce_news(here, everyone_, device_, static_cast<double>(replicas_));
}

}  // namespace yoke::parallel
