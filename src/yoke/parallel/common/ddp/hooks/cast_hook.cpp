// fp16 and bf16: half the bytes.
#include "yoke/comm/tensors/tensors.h"
#include "yoke/parallel/common/ddp/hooks/feedback.h"
#include "yoke/parallel/common/ddp/hooks/hooks.h"

namespace yoke::parallel {
namespace {

class CastHook final : public CommHook {
 public:
  explicit CastHook(torch::ScalarType type) : type_(type) {}

  bool advance(GradientBucket& bucket, int phase) override {
    torch::NoGradGuard no_grad;
    bool same = bucket.flat.scalar_type() == type_;
    torch::Tensor& wire = states_.of(bucket);
    if (phase == 1) {
      bucket.pending.wait();
      if (!same) bucket.flat.copy_(wire);
      return false;
    }
    if (bucket.flat.numel() == 0) return false;
    if (!wire.defined()) wire = same ? bucket.flat : wire_tensor(bucket, bucket.flat.numel(), type_);
    if (bucket.divisor != 1) bucket.flat.div_(bucket.divisor);
    if (!same) wire.copy_(bucket.flat);
    comm::OpOptions options;
    std::string name = name_of(bucket, "gradients");
    options.name = name;
    bucket.pending = bucket.comm->all_reduce(comm::buffer_of(wire), ReduceOp::kSum, options);
    count(bucket, static_cast<int64_t>(wire.nbytes()));
    return true;
  }

  void forget_buckets() override { states_.forget(); }

 private:
  torch::ScalarType type_;
  StateOfBuckets<torch::Tensor> states_;
};

}  // namespace

std::shared_ptr<CommHook> make_cast_hook(torch::ScalarType type) {
  return std::make_shared<CastHook>(type);
}

}  // namespace yoke::parallel
