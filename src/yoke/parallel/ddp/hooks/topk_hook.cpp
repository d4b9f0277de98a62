// Top-k with error feedback (Aji, Heafield 2017; Stich, Cordonnier, Jaggi 2018).
#include <cmath>
#include <limits>

#include "yoke/base/error.h"
#include "yoke/comm/tensors/tensors.h"
#include "yoke/kernels/compress.h"
#include "yoke/parallel/ddp/hooks/feedback.h"
#include "yoke/parallel/ddp/hooks/hooks.h"

namespace yoke::parallel {
namespace {

// A rank's message: `kept` values, then their places.
struct TopkState {
  Feedback feedback;
  torch::Tensor messages;  // of all ranks
  int64_t kept = 0;
  int64_t bytes = 0;  // of one message

  template <class T>
  T* values(int64_t rank) const {
    return reinterpret_cast<T*>(messages.data_ptr<uint8_t>() + rank * bytes);
  }
  template <class T>
  int32_t* places(int64_t rank) const {
    return reinterpret_cast<int32_t*>(values<T>(rank) + kept);
  }
};

class TopkHook final : public CommHook {
 public:
  explicit TopkHook(double fraction) : fraction_(fraction) {}

  bool advance(GradientBucket& bucket, int phase) override {
    torch::NoGradGuard no_grad;
    require_host_memory(bucket, "topk");
    if (bucket.flat.numel() == 0) return false;
    TopkState& state = states_.of(bucket);
    if (phase == 0)
      with_type(state.feedback.compensate(bucket), [&](auto t) { send<decltype(t)>(bucket, state); });
    else
      with_type(state.feedback.values(), [&](auto t) { receive<decltype(t)>(bucket, state); });
    return phase == 0;
  }

  void forget_buckets() override { states_.forget(); }

 private:
  template <class T>
  void send(GradientBucket& bucket, TopkState& state) {
    const torch::Tensor& x = state.feedback.values();
    if (!state.messages.defined()) {
      YOKE_CHECK(x.numel() <= std::numeric_limits<int32_t>::max(), "a bucket of {} numbers", x.numel());
      double kept = std::ceil(fraction_ * static_cast<double>(x.numel()));
      state.kept = std::clamp<int64_t>(static_cast<int64_t>(kept), 1, x.numel());
      int64_t size = static_cast<int64_t>(sizeof(T));
      state.bytes = (state.kept * (size + 4) + size - 1) / size * size;  // so that values are aligned
      state.messages = wire_tensor(bucket, state.bytes * bucket.comm->size(), torch::kUInt8);
      state.messages.zero_();
    }
    int64_t rank = bucket.comm->rank();
    int32_t* places = state.places<T>(rank);
    T* values = state.values<T>(rank);
    const T* from = x.const_data_ptr<T>();
    kernels::largest_magnitudes(from, x.numel(), state.kept, places);
    for (int64_t i = 0; i < state.kept; ++i) values[i] = from[places[i]];
    comm::ConstBuffer mine(values, state.bytes, DataType::kUint8);
    comm::OpOptions options;
    std::string name = name_of(bucket, "largest gradients");
    options.name = name;
    bucket.pending = bucket.comm->all_gather(mine, comm::buffer_of(state.messages), {}, options);
    count(bucket, state.bytes);
  }

  template <class T>
  void receive(GradientBucket& bucket, TopkState& state) {
    bucket.pending.wait();
    int64_t ranks = bucket.comm->size();
    bool finite = true;
    for (int64_t rank = 0; rank < ranks; ++rank)
      for (int64_t i = 0; i < state.kept; ++i) finite &= std::isfinite(state.values<T>(rank)[i]);
    torch::Tensor& x = state.feedback.values();
    if (finite) remember<T>(state, bucket.comm->rank());
    x.zero_();
    T* out = x.data_ptr<T>();
    T divisor = static_cast<T>(bucket.divisor);
    for (int64_t rank = 0; rank < ranks; ++rank)
      for (int64_t i = 0; i < state.kept; ++i)
        out[state.places<T>(rank)[i]] += state.values<T>(rank)[i] / divisor;
    state.feedback.store(bucket);
  }

  template <class T>
  static void remember(TopkState& state, int64_t rank) {
    torch::Tensor& error = state.feedback.error();
    error.copy_(state.feedback.values());
    T* left_out = error.data_ptr<T>();
    for (int64_t i = 0; i < state.kept; ++i) left_out[state.places<T>(rank)[i]] = 0;
  }

  double fraction_;
  StateOfBuckets<TopkState> states_;
};

}  // namespace

std::shared_ptr<CommHook> make_topk_hook(double fraction) {
  return std::make_shared<TopkHook>(fraction);
}

}  // namespace yoke::parallel
