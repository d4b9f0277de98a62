// Signs with error feedback (Karimireddy, Rebjock, Stich, Jaggi 2019).
#include <cmath>

#include "yoke/comm/tensors/tensors.h"
#include "yoke/kernels/compress.h"
#include "yoke/parallel/ddp/hooks/feedback.h"
#include "yoke/parallel/ddp/hooks/hooks.h"

namespace yoke::parallel {
namespace {

// A rank's message: the scales of its chunks, then the bits.
struct SignState {
  Feedback feedback;
  torch::Tensor messages;  // of all ranks
  int64_t chunks = 0;
  int64_t bytes = 0;  // of one message

  float* scales(int64_t rank) const {
    return reinterpret_cast<float*>(messages.data_ptr<uint8_t>() + rank * bytes);
  }
  uint8_t* bits(int64_t rank) const { return reinterpret_cast<uint8_t*>(scales(rank) + chunks); }
};

class SignHook final : public CommHook {
 public:
  bool advance(GradientBucket& bucket, int phase) override {
    torch::NoGradGuard no_grad;
    require_host_memory(bucket, "sign");
    if (bucket.flat.numel() == 0) return false;
    SignState& state = states_.of(bucket);
    if (phase == 0)
      with_type(state.feedback.compensate(bucket), [&](auto t) { send<decltype(t)>(bucket, state); });
    else
      with_type(state.feedback.values(), [&](auto t) { receive<decltype(t)>(bucket, state); });
    return phase == 0;
  }

  void forget_buckets() override { states_.forget(); }

 private:
  template <class T>
  void send(GradientBucket& bucket, SignState& state) {
    int64_t size = bucket.flat.numel();
    if (!state.messages.defined()) {
      state.chunks = kernels::chunks_of(size, kernels::kSignChunk);
      state.bytes = state.chunks * 4 + (size + 31) / 32 * 4;
      state.messages = wire_tensor(bucket, state.bytes * bucket.comm->size(), torch::kUInt8);
      state.messages.zero_();
    }
    int64_t rank = bucket.comm->rank();
    const T* x = state.feedback.values().const_data_ptr<T>();
    for_blocks(size, kernels::kSignChunk, [&](int64_t begin, int64_t end) {
      kernels::pack_signs(x + begin, end - begin, state.scales(rank) + begin / kernels::kSignChunk,
                          state.bits(rank) + begin / 8);
    });
    comm::ConstBuffer mine(state.scales(rank), state.bytes, DataType::kUint8);
    comm::OpOptions options;
    std::string name = name_of(bucket, "signs");
    options.name = name;
    bucket.pending = bucket.comm->all_gather(mine, comm::buffer_of(state.messages), {}, options);
    count(bucket, state.bytes);
  }

  template <class T>
  void receive(GradientBucket& bucket, SignState& state) {
    bucket.pending.wait();
    int64_t ranks = bucket.comm->size();
    int64_t mine = bucket.comm->rank();
    bool finite = true;
    for (int64_t rank = 0; rank < ranks; ++rank)
      for (int64_t i = 0; i < state.chunks; ++i) finite &= std::isfinite(state.scales(rank)[i]);
    T* x = state.feedback.values().template data_ptr<T>();
    T* error = state.feedback.error().template data_ptr<T>();
    for_blocks(bucket.flat.numel(), kernels::kSignChunk, [&](int64_t begin, int64_t end) {
      auto add = [&](T* out, int64_t rank, double factor) {
        kernels::add_signs(out + begin, state.bits(rank) + begin / 8,
                           state.scales(rank) + begin / kernels::kSignChunk, end - begin, factor);
      };
      if (finite) {
        std::copy(x + begin, x + end, error + begin);
        add(error, mine, -1);
      }
      std::fill(x + begin, x + end, T{0});
      for (int64_t rank = 0; rank < ranks; ++rank) add(x, rank, 1 / bucket.divisor);
    });
    state.feedback.store(bucket);
  }

  StateOfBuckets<SignState> states_;
};

}  // namespace

std::shared_ptr<CommHook> make_sign_hook() {
  return std::make_shared<SignHook>();
}

}  // namespace yoke::parallel
