#include "yoke/parallel/can_record.h"

#include <algorithm>

#include "yoke/optim/scaled_update.h"

namespace yoke::parallel {
namespace {

bool values_decide(const Kit& kit, const MakeOptions& options) {
  return options.optimizer.optimizer == "lbfgs" || kit.model.sample.kind == SampleKind::kSparse;
}

bool recomputes(const Kit& kit) {
  return std::ranges::any_of(kit.segments, [](const compute::Segment& one) { return one.recompute; });
}

}  // namespace

bool can_record(const Kit& kit, const MakeOptions& options) {
  const bool alone = !options.has_peers() && options.replicas_in_process() == 1;
  const bool scales = kit.precision == Precision::kFp16;
  return kit.device.is_cuda() && options.cuda_graph && alone && !options.slices && options.equal_batches &&
         !values_decide(kit, options) &&
         (!scales ||
          (options.optimizer.ema == 0 && optim::can_follow_scaled_update(options.optimizer.optimizer)));
}

// A graph neither waits for peers nor returns to the host.
std::string why_not_recorded(const Kit& kit, const MakeOptions& options) {
  if (!options.cuda_graph) return "train.cuda_graph = false";
  if (options.slices) return "layers communicate in forward and backward (parallel.tensor)";
  if (options.sync_batchnorm) return "layers communicate in forward and backward (train.sync_batchnorm)";
  if (!options.equal_batches) return "the last batch of an epoch is smaller (data.drop_last = false)";
  if (values_decide(kit, options)) return "the work of a step depends on its values";
  if (kit.precision == Precision::kFp16) return "the host adjusts the loss scale (train.precision = fp16)";
  if (recomputes(kit)) return "blocks are recomputed (train.recompute)";
  if (options.ddp.find_unused) return "parameters in use change from step to step (ddp.find_unused)";
  if (!options.ddp.gradient_as_bucket_view)
    return "gradients are not in the buckets (ddp.gradient_as_bucket_view = false)";
  if (!options.ddp.delay_allreduce) return "buckets travel during backward (ddp.delay_allreduce = false)";
  return "";
}

}  // namespace yoke::parallel
