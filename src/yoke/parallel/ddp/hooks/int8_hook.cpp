// 8-bit numbers: each rank adds up its share of the bucket in full precision and sends the sum on, quantised
// again. What both roundings lose is fed back.
#include <cmath>

#include "yoke/comm/tensors/tensors.h"
#include "yoke/kernels/compress.h"
#include "yoke/parallel/ddp/hooks/feedback.h"
#include "yoke/parallel/ddp/hooks/hooks.h"

namespace yoke::parallel {
namespace {

// A message is about one rank's share: the scales of its chunks, then the numbers.
struct Int8State {
  Feedback feedback;
  torch::Tensor sent, received, sums;  // messages, one for each rank
  torch::Tensor total;                 // of this rank's share, not divided
  int64_t share = 0;                   // numbers; the last ranks may have fewer, or none
  int64_t chunks = 0;
  int64_t bytes = 0;  // of one message

  float* scales(const torch::Tensor& messages, int64_t rank) const {
    return reinterpret_cast<float*>(messages.data_ptr<uint8_t>() + rank * bytes);
  }
  int8_t* quanta(const torch::Tensor& messages, int64_t rank) const {
    return reinterpret_cast<int8_t*>(scales(messages, rank) + chunks);
  }
  // Where rank's share of `size` numbers begins, and how many there are.
  int64_t begin(int64_t rank, int64_t size) const { return std::min(rank * share, size); }
  int64_t length(int64_t rank, int64_t size) const { return begin(rank + 1, size) - begin(rank, size); }
};

// Quantises `length` numbers into message `rank`.
template <class T>
void write_message(const Int8State& state, const torch::Tensor& messages, int64_t rank, const T* x,
                   int64_t length) {
  for_blocks(length, kernels::kQuantumChunk, [&](int64_t begin, int64_t end) {
    kernels::quantise(x + begin, end - begin, state.scales(messages, rank) + begin / kernels::kQuantumChunk,
                      state.quanta(messages, rank) + begin);
  });
}

// out += factor times message `rank`.
template <class T>
void add_message(const Int8State& state, const torch::Tensor& messages, int64_t rank, T* out, int64_t length,
                 double factor) {
  for_blocks(length, kernels::kQuantumChunk, [&](int64_t begin, int64_t end) {
    kernels::add_quanta(out + begin, state.quanta(messages, rank) + begin,
                        state.scales(messages, rank) + begin / kernels::kQuantumChunk, end - begin, factor);
  });
}

class Int8Hook final : public CommHook {
 public:
  bool advance(GradientBucket& bucket, int phase) override {
    torch::NoGradGuard no_grad;
    require_host_memory(bucket, "int8");
    if (bucket.flat.numel() == 0) return false;
    Int8State& state = states_.of(bucket);
    torch::Tensor& values = phase == 0 ? state.feedback.compensate(bucket) : state.feedback.values();
    with_type(values, [&](auto t) {
      using T = decltype(t);
      if (phase == 0) send<T>(bucket, state);
      if (phase == 1) add_up<T>(bucket, state);
      if (phase == 2) receive<T>(bucket, state);
    });
    return phase < 2;
  }

  void forget_buckets() override { states_.forget(); }

 private:
  static void allocate(GradientBucket& bucket, Int8State& state) {
    int64_t ranks = bucket.comm->size();
    state.share = (bucket.flat.numel() + ranks - 1) / ranks;
    state.chunks = kernels::chunks_of(state.share, kernels::kQuantumChunk);
    state.bytes = state.chunks * 4 + (state.share + 3) / 4 * 4;
    for (torch::Tensor* messages : {&state.sent, &state.received, &state.sums}) {
      *messages = wire_tensor(bucket, state.bytes * ranks, torch::kUInt8);
      messages->zero_();
    }
    int64_t mine = state.length(bucket.comm->rank(), bucket.flat.numel());
    state.total = torch::zeros({mine}, state.feedback.values().options());
  }

  template <class T>
  void send(GradientBucket& bucket, Int8State& state) {
    if (!state.sent.defined()) allocate(bucket, state);
    int64_t size = bucket.flat.numel();
    const T* x = state.feedback.values().const_data_ptr<T>();
    for (int64_t rank = 0; rank < bucket.comm->size(); ++rank)
      write_message(state, state.sent, rank, x + state.begin(rank, size), state.length(rank, size));
    comm::OpOptions options;
    std::string name = name_of(bucket, "8-bit gradients");
    options.name = name;
    bucket.pending =
        bucket.comm->all_to_all(comm::buffer_of(state.sent), comm::buffer_of(state.received), options);
    count(bucket, state.bytes * (bucket.comm->size() + 1));
  }

  template <class T>
  void add_up(GradientBucket& bucket, Int8State& state) {
    bucket.pending.wait();
    int64_t mine = bucket.comm->rank();
    state.total.zero_();
    T* total = state.total.data_ptr<T>();
    for (int64_t rank = 0; rank < bucket.comm->size(); ++rank)
      add_message(state, state.received, rank, total, state.total.numel(), 1);
    write_message(state, state.sums, mine, total, state.total.numel());
    comm::ConstBuffer input(state.scales(state.sums, mine), state.bytes, DataType::kUint8);
    comm::OpOptions options;
    std::string name = name_of(bucket, "8-bit sums");
    options.name = name;
    bucket.pending = bucket.comm->all_gather(input, comm::buffer_of(state.sums), {}, options);
  }

  template <class T>
  void receive(GradientBucket& bucket, Int8State& state) {
    bucket.pending.wait();
    int64_t size = bucket.flat.numel();
    bool finite = true;
    for (int64_t rank = 0; rank < bucket.comm->size(); ++rank)
      for (int64_t i = 0; i < state.chunks; ++i) finite &= std::isfinite(state.scales(state.sums, rank)[i]);
    if (finite) remember<T>(bucket, state);
    torch::Tensor& values = state.feedback.values();
    values.zero_();
    T* x = values.data_ptr<T>();
    for (int64_t rank = 0; rank < bucket.comm->size(); ++rank)
      add_message(state, state.sums, rank, x + state.begin(rank, size), state.length(rank, size),
                  1 / bucket.divisor);
    state.feedback.store(bucket);
  }

  // What the first rounding lost of this rank's gradients, and the second one of the sums it made.
  template <class T>
  static void remember(GradientBucket& bucket, Int8State& state) {
    int64_t size = bucket.flat.numel();
    int64_t mine = bucket.comm->rank();
    torch::Tensor& error = state.feedback.error();
    error.copy_(state.feedback.values());
    T* e = error.data_ptr<T>();
    for (int64_t rank = 0; rank < bucket.comm->size(); ++rank)
      add_message(state, state.sent, rank, e + state.begin(rank, size), state.length(rank, size), -1);
    error.narrow(0, state.begin(mine, size), state.total.numel()).add_(state.total);
    add_message(state, state.sums, mine, e + state.begin(mine, size), state.total.numel(), -1);
  }

  StateOfBuckets<Int8State> states_;
};

}  // namespace

std::shared_ptr<CommHook> make_int8_hook() {
  return std::make_shared<Int8Hook>();
}

}  // namespace yoke::parallel
