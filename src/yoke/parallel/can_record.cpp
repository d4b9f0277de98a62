#include "yoke/parallel/can_record.h"

#include "yoke/optim/scaled_update.h"

namespace yoke::parallel {

bool can_record(const Kit& kit, const MakeOptions& options) {
  // With peers, communication is waited for, which a captured stream cannot do.
  const bool alone = !options.has_peers() && options.replicas_in_process() == 1;
  const bool scales = kit.precision == Precision::kFp16;
  return kit.device.is_cuda() && options.cuda_graph && alone && !options.slices && options.equal_batches &&
         options.optimizer.optimizer != "lbfgs" && kit.model.sample.kind != SampleKind::kSparse &&
         (!scales || optim::can_follow_scaled_update(options.optimizer.optimizer));
}

}  // namespace yoke::parallel
