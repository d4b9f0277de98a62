// 8-bit values: each rank sums its share of the bucket in full precision and sends the sum on, quantised
// again. The errors of both roundings are fed back.
#include <algorithm>
#include <optional>

#include "yoke/comm/tensors/tensors.h"
#include "yoke/parallel/common/ddp/hooks/feedback.h"
#include "yoke/parallel/common/ddp/hooks/hooks.h"
#include "yoke/parallel/common/ddp/hooks/message_format.h"

namespace yoke::parallel {
namespace {

struct Int8State {
  Feedback feedback;
  std::optional<MessageFormat> format;  // of a share
  torch::Tensor sent, received, sums;   // [ranks, bytes]: messages to, from and about the share of each rank
  torch::Tensor total;                  // of this rank's share, not divided
  int64_t share = 0;                    // values; the last ranks may have fewer, or none

  torch::Tensor share_of(const torch::Tensor& values, int64_t rank) const {
    int64_t begin = std::min(rank * share, values.numel());
    return values.narrow(0, begin, std::min(share, values.numel() - begin));
  }
};

class Int8Hook final : public CommHook {
 public:
  explicit Int8Hook(PackingOn choose) : choose_(choose) {}

  bool advance(GradientBucket& bucket, int phase) override {
    torch::NoGradGuard no_grad;
    if (bucket.flat.numel() == 0) return false;
    Int8State& state = states_.of(bucket);
    if (phase == 0) send(bucket, state);
    if (phase == 1) add_up(bucket, state);
    if (phase == 2) receive(bucket, state);
    return phase < 2;
  }

  void forget_buckets() override { states_.forget(); }

 private:
  void allocate(const GradientBucket& bucket, const torch::Tensor& values, Int8State& state) {
    int64_t ranks = bucket.comm->size();
    state.share = (values.numel() + ranks - 1) / ranks;
    state.format = int8_format(choose_(values.device()), state.share);
    for (torch::Tensor* messages : {&state.sent, &state.received, &state.sums})
      *messages = message_tensor(bucket, state.format->bytes());
    state.total = torch::empty_like(state.share_of(values, bucket.comm->rank()));
  }

  void send(GradientBucket& bucket, Int8State& state) {
    const torch::Tensor& values = state.feedback.compensate(bucket);
    if (!state.format) allocate(bucket, values, state);
    for (int64_t rank = 0; rank < bucket.comm->size(); ++rank)
      state.format->pack(state.share_of(values, rank), state.sent[rank]);
    comm::OpOptions options;
    std::string name = name_of(bucket, "8-bit gradients");
    options.name = name;
    bucket.pending =
        bucket.comm->all_to_all(comm::buffer_of(state.sent), comm::buffer_of(state.received), options);
    count(bucket, state.format->bytes() * (bucket.comm->size() + 1));
  }

  static void add_up(GradientBucket& bucket, Int8State& state) {
    bucket.pending.wait();
    state.format->add({{state.total, {}, 0, bucket.comm->size(), 1}}, state.received);
    torch::Tensor mine = state.sums[bucket.comm->rank()];
    state.format->pack(state.total, mine);
    comm::OpOptions options;
    std::string name = name_of(bucket, "8-bit sums");
    options.name = name;
    bucket.pending = bucket.comm->all_gather(comm::buffer_of(mine), comm::buffer_of(state.sums), {}, options);
  }

  static void receive(GradientBucket& bucket, Int8State& state) {
    bucket.pending.wait();
    state.format->replace_if_finite(state.feedback.error(), state.sums, [&](const torch::Tensor& error) {
      if (error.defined()) write_error(state, error, bucket.comm->rank());
    });
    for (int64_t rank = 0; rank < bucket.comm->size(); ++rank) {
      torch::Tensor out = state.share_of(state.feedback.values(), rank);
      state.format->add({{out, {}, rank, 1, bucket.divisor}}, state.sums);
    }
    state.feedback.store(bucket);
  }

  // The error of the first rounding on this rank's gradients, and of the second on the sums it computed.
  static void write_error(const Int8State& state, const torch::Tensor& error, int64_t mine) {
    for (int64_t rank = 0; rank < state.sent.size(0); ++rank) {
      torch::Tensor out = state.share_of(error, rank), values = state.share_of(state.feedback.values(), rank);
      state.format->add({{out, values, rank, 1, -1}}, state.sent);
    }
    torch::Tensor own = state.share_of(error, mine).add_(state.total);
    state.format->add({{own, own, mine, 1, -1}}, state.sums);
  }

  PackingOn choose_;
  StateOfBuckets<Int8State> states_;
};

}  // namespace

std::shared_ptr<CommHook> make_int8_hook(PackingOn choose) {
  return std::make_shared<Int8Hook>(choose);
}

}  // namespace yoke::parallel
