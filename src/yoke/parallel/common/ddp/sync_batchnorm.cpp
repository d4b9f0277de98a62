#include "yoke/parallel/common/ddp/sync_batchnorm.h"

#include "yoke/base/error.h"
#include "yoke/comm/tensors/tensors.h"
#include "yoke/compute/recompute.h"
#include "yoke/compute/shared_batch_norm.h"

namespace yoke {
namespace {

class RankStatistics final : public compute::StatisticsExchange {
 public:
  explicit RankStatistics(comm::Communicator& comm) : comm_(comm) {}

  torch::Tensor gather(const torch::Tensor& mine) override {
    return comm::all_gather(comm_, mine.unsqueeze(0), "batch norm statistics");
  }
  void sum(torch::Tensor& numbers) override {
    comm::all_reduce(comm_, numbers, ReduceOp::kSum, "batch norm gradients");
  }

 private:
  comm::Communicator& comm_;
};

template <class Norm>
bool attach_if(const std::string& name, torch::nn::Module& part,
               const std::shared_ptr<compute::StatisticsExchange>& exchange) {
  auto* norm = dynamic_cast<Norm*>(&part);
  if (norm == nullptr) return false;
  if (!norm->weight.defined() && !norm->running_mean.defined())
    throw ConfigError(
        "BatchNorm layer '{}' has neither parameters nor running statistics to know it by. Declare it as "
        "yoke::SyncBatchNorm.",
        name);
  compute::attach_statistics_exchange(norm->weight, norm->running_mean, exchange);
  return true;
}

}  // namespace

SyncBatchNormImpl::SyncBatchNormImpl(int64_t features, comm::Communicator& comm)
    : SyncBatchNormImpl(torch::nn::BatchNormOptions(features), comm) {}

SyncBatchNormImpl::SyncBatchNormImpl(const torch::nn::BatchNormOptions& options_, comm::Communicator& comm)
    : NormImplBase(options_), comm_(&comm) {}

torch::Tensor SyncBatchNormImpl::forward(const torch::Tensor& input) {
  _check_input_dim(input);
  bool shared = is_training() || !options.track_running_stats();
  if (!shared)
    return at::batch_norm(input, weight, bias, running_mean, running_var, /*training=*/false, 0.0,
                          options.eps(), at::globalContext().userEnabledCuDNN());
  double momentum = 0;
  if (is_training() && options.track_running_stats() && !in_recomputation()) {
    num_batches_tracked.add_(1);
    momentum = options.momentum() ? *options.momentum() : 1.0 / num_batches_tracked.item<double>();
  }
  return compute::shared_batch_norm(input, weight, bias, running_mean, running_var, momentum, options.eps(),
                                    std::make_shared<RankStatistics>(*comm_));
}

void SyncBatchNormImpl::pretty_print(std::ostream& stream) const {
  stream << "yoke::SyncBatchNorm(" << options.num_features() << ", eps=" << options.eps()
         << ", group=" << comm_->name() << ")";
}

void SyncBatchNormImpl::_check_input_dim(const torch::Tensor& input) {
  if (input.dim() >= 2 && input.size(1) == options.num_features()) return;
  throw ConfigError("SyncBatchNorm of {} channels got {}. Accepted: [N, {}] or [N, {}, ..].",
                    options.num_features(), c10::str(input.sizes()), options.num_features(),
                    options.num_features());
}

int64_t convert_sync_batchnorm(torch::nn::Module& module, comm::Communicator& comm) {
  auto exchange = std::make_shared<RankStatistics>(comm);
  int64_t converted = 0;
  auto visit = [&](const std::string& name, torch::nn::Module& part) {
    converted += attach_if<torch::nn::BatchNorm1dImpl>(name, part, exchange) ||
                 attach_if<torch::nn::BatchNorm2dImpl>(name, part, exchange) ||
                 attach_if<torch::nn::BatchNorm3dImpl>(name, part, exchange);
  };
  visit("", module);
  for (const auto& part : module.named_modules("", /*include_self=*/false)) visit(part.key(), *part.value());
  return converted;
}

}  // namespace yoke
