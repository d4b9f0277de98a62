#include "yoke/compute/shared_batch_norm.h"

#include <torch/csrc/autograd/custom_function.h>

#include "yoke/base/error.h"
#include "yoke/compute/fast_path.h"
#include "yoke/compute/recompute_kept.h"

namespace yoke::compute {
namespace {

using torch::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct ExchangeHolder : torch::CustomClassHolder {
  explicit ExchangeHolder(std::shared_ptr<StatisticsExchange> value) : exchange(std::move(value)) {}
  std::shared_ptr<StatisticsExchange> exchange;
};

// Statistics of one channel, over all ranks.
struct Moments {
  Tensor mean, m2;  // [C], fp64; m2: sum of squared distances from the mean
  double count = 0;
};

int64_t numbers_per_channel(const Tensor& x) {
  return x.numel() / x.size(1);
}

// fp16 and bf16 have fp32 statistics.
torch::ScalarType statistics_type(const Tensor& x) {
  return x.scalar_type() == torch::kFloat64 ? torch::kFloat64 : torch::kFloat32;
}

// mean [C], m2 [C], count [1] of this rank's samples.
Tensor local_moments(const Tensor& x) {
  auto wide = x.options().dtype(torch::kFloat64);
  int64_t channels = x.size(1);
  if (x.numel() == 0) return torch::zeros({2 * channels + 1}, wide);
  // Dummy running statistics make LibTorch compute in their type.
  auto options = x.options().dtype(statistics_type(x));
  auto [mean, variance] = at::batch_norm_update_stats(x, torch::zeros({channels}, options),
                                                      torch::ones({channels}, options), 0.0);
  double count = static_cast<double>(numbers_per_channel(x));
  return torch::cat(
      {mean.to(torch::kFloat64), variance.to(torch::kFloat64) * count, torch::full({1}, count, wide)});
}

Moments merge(const Tensor& all, int64_t channels) {
  Tensor means = all.narrow(1, 0, channels), counts = all.narrow(1, 2 * channels, 1);
  Moments total;
  total.count = counts.sum().item<double>();
  if (total.count <= 1)
    throw ConfigError(
        "BatchNorm over {} ranks has {} values per channel in training. It needs more than one.", all.size(0),
        total.count);
  total.mean = (means * counts).sum(0) / total.count;
  total.m2 = (all.narrow(1, channels, channels) + counts * (means - total.mean).square()).sum(0);
  return total;
}

void update_running(const Tensor& running_mean, const Tensor& running_var, const Moments& total,
                    double momentum) {
  if (!running_mean.defined() || momentum == 0) return;
  torch::NoGradGuard no_grad;
  Tensor mean = running_mean, variance = running_var;
  mean.mul_(1 - momentum).add_(total.mean.to(mean.scalar_type()), momentum);
  variance.mul_(1 - momentum).add_((total.m2 / (total.count - 1)).to(variance.scalar_type()), momentum);
}

// weight * (x - mean) / sqrt(variance + eps) + bias: one pass in every memory format.
Tensor normalise(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& mean,
                 const Tensor& variance, double eps) {
  if (x.numel() == 0) return at::empty_like(x);
  return std::get<0>(at::native_batch_norm(x, weight, bias, mean, variance, /*training=*/false, 0.0, eps));
}

struct SharedBatchNorm : torch::autograd::Function<SharedBatchNorm> {
  static Tensor forward(AutogradContext* ctx, const Tensor& x, const std::optional<Tensor>& maybe_weight,
                        const std::optional<Tensor>& maybe_bias, const Tensor& mean, const Tensor& variance,
                        double count, double eps, const std::shared_ptr<StatisticsExchange>& exchange) {
    Tensor weight = maybe_weight.value_or(Tensor()), bias = maybe_bias.value_or(Tensor());
    ctx->save_for_backward({x, weight, mean, variance});
    ctx->saved_data["count"] = count;
    ctx->saved_data["eps"] = eps;
    ctx->saved_data["exchange"] = c10::IValue::make_capsule(c10::make_intrusive<ExchangeHolder>(exchange));
    return normalise(x, weight, bias, mean, variance, eps);
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    require_first_derivative("batch_norm over several ranks");
    variable_list saved = ctx->get_saved_variables();
    const Tensor &x = saved[0], &weight = saved[1], &mean = saved[2], &variance = saved[3];
    double eps = ctx->saved_data["eps"].toDouble();
    // Sums of dy * (x - mean) / deviation and of dy: the gradients of weight and bias.
    Tensor grad_weight = torch::zeros_like(mean), grad_bias = torch::zeros_like(mean);
    if (x.numel() > 0)
      std::tie(std::ignore, grad_weight, grad_bias) = at::native_batch_norm_backward(
          grads[0], x, weight, mean, variance, {}, {}, /*train=*/false, eps, {false, true, true});
    Tensor grad_x;
    if (ctx->needs_input_grad(0)) {
      Tensor sums = torch::cat({grad_weight.to(torch::kFloat64), grad_bias.to(torch::kFloat64)});
      auto holder = ctx->saved_data["exchange"].toCapsule();
      static_cast<ExchangeHolder*>(holder.get())->exchange->sum(sums);
      grad_x = input_gradient(grads[0], saved, sums / ctx->saved_data["count"].toDouble(), eps);
    }
    bool affine = weight.defined();
    return {grad_x,
            affine ? grad_weight : Tensor(),
            affine ? grad_bias : Tensor(),
            Tensor(),
            Tensor(),
            Tensor(),
            Tensor(),
            Tensor()};
  }

  // dx = scale * (dy - mean of dy - xhat * mean of dy xhat), scale = weight / deviation: the part in x is
  // itself a batch norm.
  static Tensor input_gradient(const Tensor& dy, const variable_list& saved, const Tensor& means,
                               double eps) {
    const Tensor &x = saved[0], &weight = saved[1], &mean = saved[2], &variance = saved[3];
    if (x.numel() == 0) return torch::zeros_like(x);
    int64_t channels = mean.numel();
    Tensor scale = (variance.to(torch::kFloat64) + eps).rsqrt();
    if (weight.defined()) scale = scale * weight.to(torch::kFloat64);
    auto typed = [&](const Tensor& t) { return t.to(mean.scalar_type()); };
    Tensor slope = typed(-scale * means.narrow(0, 0, channels));
    Tensor shift = typed(-scale * means.narrow(0, channels, channels));
    Tensor dx = normalise(x.to(mean.scalar_type()), slope, shift, mean, variance, eps);
    std::vector<int64_t> shape(static_cast<size_t>(x.dim()), 1);
    shape[1] = channels;
    return dx.addcmul_(typed(dy), typed(scale).view(shape)).to(x.scalar_type());
  }
};

}  // namespace

Tensor shared_batch_norm(const Tensor& x, const Tensor& weight, const Tensor& bias,
                         const Tensor& running_mean, const Tensor& running_var, double momentum, double eps,
                         const std::shared_ptr<StatisticsExchange>& exchange) {
  Moments total;
  {
    torch::NoGradGuard no_grad;
    Tensor all = once_for_both_runs([&] { return exchange->gather(local_moments(x.detach())); });
    total = merge(all, x.size(1));
    update_running(running_mean, running_var, total, momentum);
  }
  auto type = statistics_type(x);
  auto maybe = [](const Tensor& t) { return t.defined() ? std::optional(t) : std::nullopt; };
  return SharedBatchNorm::apply(x, maybe(weight), maybe(bias), total.mean.to(type),
                                (total.m2 / total.count).to(type), total.count, eps, exchange);
}

}  // namespace yoke::compute
