// Registry of layers that share their statistics, and the hook in LibTorch's own batch_norm.
#include <ATen/ops/batch_norm_native.h>
#include <torch/library.h>

#include <atomic>
#include <mutex>
#include <unordered_map>

#include "yoke/base/error.h"
#include "yoke/compute/recompute.h"
#include "yoke/compute/shared_batch_norm.h"

namespace yoke::compute {
namespace {

using MaybeTensor = std::optional<torch::Tensor>;

struct Attached {
  // Keeps the address from being reused by another tensor.
  c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl> tensor;
  std::shared_ptr<StatisticsExchange> exchange;
};

struct AttachedTable {
  std::mutex mutex;
  std::unordered_map<const c10::TensorImpl*, Attached> layers;
  std::atomic<bool> any = false;
};

AttachedTable& attached_table() {
  static AttachedTable table;
  return table;
}

const torch::Tensor& key_of(const torch::Tensor& weight, const torch::Tensor& running_mean) {
  return running_mean.defined() ? running_mean : weight;
}

torch::Tensor batch_norm_that_asks(const torch::Tensor& x, const MaybeTensor& weight, const MaybeTensor& bias,
                                   const MaybeTensor& running_mean, const MaybeTensor& running_var,
                                   bool training, double momentum, double eps, bool cudnn) {
  torch::Tensor w = weight.value_or(torch::Tensor()), mean = running_mean.value_or(torch::Tensor());
  auto exchange = training ? statistics_exchange_of(w, mean) : nullptr;
  if (!exchange)
    return at::native::batch_norm(x, weight, bias, running_mean, running_var, training, momentum, eps, cudnn);
  return shared_batch_norm(x, w, bias.value_or(torch::Tensor()), mean, running_var.value_or(torch::Tensor()),
                           in_recomputation() ? 0.0 : momentum, eps, exchange);
}

// torch::nn::BatchNorm::forward() is not virtual, and the module cannot be replaced inside a user's class.
// All of them go through aten::batch_norm, where LibTorch allows libraries to add a kernel.
void intercept_batch_norm() {
  using c10::DispatchKey;
  static torch::Library cpu(torch::Library::IMPL, "aten", DispatchKey::AutogradCPU, __FILE__, __LINE__);
  static torch::Library cuda(torch::Library::IMPL, "aten", DispatchKey::AutogradCUDA, __FILE__, __LINE__);
  static bool done = [] {
    cpu.impl("batch_norm", &batch_norm_that_asks);
    cuda.impl("batch_norm", &batch_norm_that_asks);
    return true;
  }();
  YOKE_CHECK(done, "batch_norm was not intercepted");
}

}  // namespace

void attach_statistics_exchange(const torch::Tensor& weight, const torch::Tensor& running_mean,
                                std::shared_ptr<StatisticsExchange> exchange) {
  intercept_batch_norm();
  const torch::Tensor& key = key_of(weight, running_mean);
  YOKE_CHECK(key.defined(), "a BatchNorm without parameters and buffers cannot be identified");
  AttachedTable& table = attached_table();
  std::lock_guard lock(table.mutex);
  std::erase_if(table.layers, [](const auto& entry) { return entry.second.tensor.expired(); });
  table.layers.erase(key.unsafeGetTensorImpl());
  if (exchange)
    table.layers.emplace(key.unsafeGetTensorImpl(),
                         Attached{c10::weak_intrusive_ptr(key.getIntrusivePtr()), std::move(exchange)});
  table.any = !table.layers.empty();
}

std::shared_ptr<StatisticsExchange> statistics_exchange_of(const torch::Tensor& weight,
                                                           const torch::Tensor& running_mean) {
  AttachedTable& table = attached_table();
  const torch::Tensor& key = key_of(weight, running_mean);
  if (!table.any || !key.defined()) return nullptr;
  std::lock_guard lock(table.mutex);
  auto found = table.layers.find(key.unsafeGetTensorImpl());
  return found == table.layers.end() ? nullptr : found->second.exchange;
}

}  // namespace yoke::compute
