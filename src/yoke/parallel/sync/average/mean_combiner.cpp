// Local SGD (Stich 2019): x <- mean of x_i.
// DiLoCo (Douillard et al. 2023), a the values that all agreed on in the last round:
//   d = mean of (a - x_i);  m <- mu m + d;  a <- a - lr (d + mu m);  x <- a.
// With lr = 1 and mu = 0 both are the same. Compressed means go by differences too: they are small, and what
// compression loses is fed back in the next round.
#include "yoke/parallel/common/ddp/all_reduce_hook.h"
#include "yoke/parallel/sync/average/combiner.h"

namespace yoke::parallel {
namespace {

class MeanCombiner : public Combiner {
 public:
  MeanCombiner(const AverageOptions& options, const std::string& hook)
      : hook_(make_hook(hook)),
        outer_(options.method == "diloco"),
        lr_(outer_ ? options.outer_lr : 1),
        momentum_(outer_ ? options.outer_momentum : 0),
        by_difference_(outer_ || hook_ != nullptr) {
    if (!hook_) hook_ = std::make_shared<AllReduceHook>();
  }

  void prepare(Fragment& fragment) override {
    if (by_difference_) fragment.anchor = torch::zeros_like(fragment.bucket.flat);
    if (momentum_ > 0) fragment.momentum = torch::zeros_like(fragment.bucket.flat);
  }

  void begin(Fragment& fragment) override {
    torch::Tensor& flat = fragment.bucket.flat;
    if (by_difference_)
      torch::sub_out(flat, fragment.anchor, fragment.sent);
    else
      flat.copy_(fragment.sent);
    fragment.more = hook_->advance(fragment.bucket, 0);
  }

  void finish(Fragment& fragment) override {
    for (int phase = 1; fragment.more; ++phase) fragment.more = hook_->advance(fragment.bucket, phase);
    if (!by_difference_) return;
    torch::Tensor& flat = fragment.bucket.flat;
    if (momentum_ > 0) {
      fragment.momentum.mul_(momentum_).add_(flat);
      flat.add_(fragment.momentum, momentum_);
    }
    fragment.anchor.sub_(flat, lr_);
    flat.copy_(fragment.anchor);
  }

  bool done(const Fragment& fragment) override { return fragment.bucket.pending.done(); }
  bool agrees() const override { return true; }

 private:
  std::shared_ptr<CommHook> hook_;
  bool outer_;
  double lr_, momentum_;
  bool by_difference_;
};

}  // namespace

std::unique_ptr<Combiner> make_mean_combiner(const AverageOptions& options, const std::string& hook) {
  return std::make_unique<MeanCombiner>(options, hook);
}

}  // namespace yoke::parallel
