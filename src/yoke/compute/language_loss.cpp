#include "yoke/compute/language_loss.h"

#include "yoke/compute/fused_loss.h"
#include "yoke/compute/interception.h"
#include "yoke/compute/layers.h"

namespace yoke::compute {

torch::Tensor consume_language_loss(const torch::Tensor& logits, const torch::Tensor& target,
                                    int64_t vocabulary) {
  if (!are_sliced_logits(logits) && can_fuse_loss(logits)) return fused_loss(logits, target, vocabulary);
  return cross_entropy(logits, target);
}

}  // namespace yoke::compute
