// Every rank receives the messages of all ranks and adds them up itself. Signs with error feedback
// (Karimireddy, Rebjock, Stich, Jaggi 2019); top-k with error feedback (Aji, Heafield 2017; Stich,
// Cordonnier, Jaggi 2018).
#include <functional>
#include <optional>

#include "yoke/comm/tensors/tensors.h"
#include "yoke/parallel/common/ddp/hooks/feedback.h"
#include "yoke/parallel/common/ddp/hooks/hooks.h"
#include "yoke/parallel/common/ddp/hooks/message_format.h"

namespace yoke::parallel {
namespace {

using MakeFormat = std::function<MessageFormat(const torch::Tensor& values)>;

struct GatherState {
  Feedback feedback;
  std::optional<MessageFormat> format;
  torch::Tensor messages;  // [ranks, bytes]
};

class GatherHook final : public CommHook {
 public:
  GatherHook(const char* what, MakeFormat make_format) : what_(what), make_format_(std::move(make_format)) {}

  bool advance(GradientBucket& bucket, int phase) override {
    torch::NoGradGuard no_grad;
    if (bucket.flat.numel() == 0) return false;
    GatherState& state = states_.of(bucket);
    if (phase == 0)
      send(bucket, state);
    else
      receive(bucket, state);
    return phase == 0;
  }

  void forget_buckets() override { states_.forget(); }

 private:
  void send(GradientBucket& bucket, GatherState& state) {
    const torch::Tensor& values = state.feedback.compensate(bucket);
    if (!state.format) {
      state.format = make_format_(values);
      state.messages = message_tensor(bucket, state.format->bytes());
    }
    torch::Tensor mine = state.messages[bucket.comm->rank()];
    state.format->pack(values, mine);
    comm::OpOptions options;
    std::string name = name_of(bucket, what_);
    options.name = name;
    bucket.pending =
        bucket.comm->all_gather(comm::buffer_of(mine), comm::buffer_of(state.messages), {}, options);
    count(bucket, state.format->bytes());
  }

  static void receive(GradientBucket& bucket, GatherState& state) {
    bucket.pending.wait();
    const torch::Tensor& values = state.feedback.values();
    int mine = bucket.comm->rank(), ranks = bucket.comm->size();
    auto write = [&](const torch::Tensor& error) {
      state.format->add({{error, values, mine, 1, -1}, {values, {}, 0, ranks, bucket.divisor}},
                        state.messages);
    };
    state.format->replace_if_finite(state.feedback.error(), state.messages, write);
    state.feedback.store(bucket);
  }

  const char* what_;
  MakeFormat make_format_;
  StateOfBuckets<GatherState> states_;
};

}  // namespace

std::shared_ptr<CommHook> make_sign_hook(PackingOn choose) {
  return std::make_shared<GatherHook>("signs", [choose](const torch::Tensor& values) {
    return sign_format(choose(values.device()), values.numel());
  });
}

std::shared_ptr<CommHook> make_topk_hook(double fraction, PackingOn choose) {
  return std::make_shared<GatherHook>("largest gradients", [fraction, choose](const torch::Tensor& values) {
    return topk_format(choose(values.device()), values.numel(), values.scalar_type(), fraction);
  });
}

}  // namespace yoke::parallel
