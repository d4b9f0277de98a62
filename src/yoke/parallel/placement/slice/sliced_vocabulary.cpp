#include <ATen/core/Reduction.h>
#include <torch/csrc/autograd/custom_function.h>

#include "yoke/base/error.h"
#include "yoke/comm/tensors/tensors.h"
#include "yoke/parallel/placement/slice/region.h"
#include "yoke/parallel/placement/slice/sliced_layers.h"

namespace yoke::parallel {
namespace {

using torch::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

struct LocalIds {
  Tensor ids;      // inside of the slice; 0 where elsewhere
  Tensor foreign;  // bool
};

LocalIds localise(const SlicedWeight& slice, const Tensor& ids) {
  Tensor foreign = ids.lt(slice.part.begin).logical_or_(ids.ge(slice.part.end));
  return {(ids - slice.part.begin).masked_fill_(foreign, 0), foreign};
}

void check_ids(const SlicedWeight& slice, const Tensor& ids) {
  if (!ids.is_cpu() || ids.numel() == 0) return;  // elsewhere the check would wait for the device
  auto [least, most] = ids.aminmax();
  TORCH_CHECK_INDEX(least.item<int64_t>() >= 0 && most.item<int64_t>() < slice.total, "layer '",
                    slice.layer(), "': index out of range: there are ", slice.total, " rows");
}

struct SlicedEmbedding : Function<SlicedEmbedding> {
  static Tensor forward(AutogradContext* ctx, const Tensor& weight, const Tensor& ids,
                        const SlicedWeightRef& slice, int64_t padding) {
    LocalIds local = localise(*slice, ids);
    ctx->saved_data["slice"] = to_value(slice);
    ctx->saved_data["rows"] = weight.size(0);
    Tensor skip = padding < 0 ? local.foreign : local.foreign.logical_or(ids.eq(padding));
    ctx->save_for_backward({local.ids, skip});
    Tensor y = at::embedding(weight, local.ids).masked_fill_(local.foreign.unsqueeze(-1), 0);
    return slice->axis->leave(y, slice->layer());
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    variable_list saved = ctx->get_saved_variables();
    SlicedWeightRef slice = from_value(ctx->saved_data["slice"]);
    Tensor grad = slice->axis->enter(grads[0], slice->gradient_name());
    Tensor of_weight = at::embedding_dense_backward(grad.masked_fill(saved[1].unsqueeze(-1), 0), saved[0],
                                                    ctx->saved_data["rows"].toInt(), /*padding_idx=*/-1,
                                                    /*scale_grad_by_freq=*/false);
    return {of_weight, Tensor(), Tensor(), Tensor()};
  }
};

struct SumOfBags : Function<SumOfBags> {
  static Tensor forward(AutogradContext*, const Tensor& y, const SlicedWeightRef& slice) {
    return slice->axis->leave(y.clone(at::MemoryFormat::Contiguous), slice->layer());
  }
  static variable_list backward(AutogradContext*, variable_list grads) { return {grads[0], Tensor()}; }
};

// Keeps the probabilities of this slice in place of a copy of the logits.
struct SlicedLoss : Function<SlicedLoss> {
  static Tensor forward(AutogradContext* ctx, const Tensor& logits, const Tensor& target,
                        const SlicedWeightRef& head, int64_t ignored) {
    comm::Communicator& comm = head->axis->comm();
    Tensor most = logits.amax(1);
    comm::all_reduce(comm, most, ReduceOp::kMax, head->layer() + " maximum");
    LocalIds local = localise(*head, target);
    Tensor shifted = logits - most.unsqueeze(1);
    Tensor totals = at::empty({2, logits.size(0)}, logits.options());
    totals[1].copy_(shifted.gather(1, local.ids.unsqueeze(1)).squeeze(1).masked_fill_(local.foreign, 0));
    shifted.exp_();
    Tensor sums = totals[0];
    at::sum_out(sums, shifted, {1});
    comm::all_reduce(comm, totals, ReduceOp::kSum, head->layer() + " sums");
    Tensor skipped = target.eq(ignored);
    Tensor losses = totals[0].log().sub_(totals[1]).masked_fill_(skipped, 0);
    shifted.div_(totals[0].unsqueeze(1));
    ctx->save_for_backward({shifted, local.ids, local.foreign, skipped});
    return losses;
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    variable_list saved = ctx->get_saved_variables();
    const Tensor &ids = saved[1], &foreign = saved[2];
    Tensor scale = grads[0].masked_fill(saved[3], 0);
    Tensor grad = saved[0] * scale.unsqueeze(1);
    grad.scatter_add_(1, ids.unsqueeze(1), scale.neg().masked_fill_(foreign, 0).unsqueeze(1));
    return {grad, Tensor(), Tensor(), Tensor()};
  }
};

}  // namespace

Tensor sliced_embedding(const SlicedWeightRef& slice, const Tensor& indices, int64_t padding) {
  check_ids(*slice, indices);
  slice->used = true;
  set_region(slice->axis->sequence() ? slice->axis : nullptr);
  return SlicedEmbedding::apply(slice->weight, indices, slice, padding);
}

Tensor sliced_embedding_bag(const SlicedWeightRef& slice, const Tensor& indices, const Tensor& offsets,
                            const Tensor& sample_weights, bool include_last_offset) {
  check_ids(*slice, indices);
  slice->used = true;
  LocalIds local = localise(*slice, indices.to(at::kLong));
  Tensor weights =
      sample_weights.defined() ? sample_weights : at::ones(indices.sizes(), slice->weight.options());
  constexpr int64_t kSum = 0;
  auto [sums, bag, size, most] =
      at::embedding_bag(slice->weight, local.ids, offsets.to(at::kLong), /*scale_grad_by_freq=*/false, kSum,
                        /*sparse=*/false, weights.masked_fill(local.foreign, 0), include_last_offset);
  return SumOfBags::apply(sums, slice);
}

Tensor sliced_cross_entropy(const SlicedWeightRef& head, const Tensor& logits, const Tensor& target,
                            int64_t reduction, int64_t ignored) {
  Tensor counted = target.ne(ignored);
  check_ids(*head, target.masked_fill(counted.logical_not(), 0));
  bool reduced = at::isReducedFloatingType(logits.scalar_type());
  Tensor losses = SlicedLoss::apply(reduced ? logits.to(at::kFloat) : logits, target, head, ignored);
  if (reduction == at::Reduction::None) return losses;
  if (reduction == at::Reduction::Sum) return losses.sum();
  return losses.sum() / counted.sum();
}

}  // namespace yoke::parallel
