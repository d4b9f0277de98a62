// PowerSGD (Vogels, Karimireddy, Jaggi 2019): one step of subspace iteration for each matrix M, started from
// the previous step's result:
//   P = sum of M Q, orthonormalised;  Q = sum of M^T P;  the gradient is P Q^T;  M - P P^T M is fed back.
// Two all_reduces of thin matrices; tensors not worth compressing are sent uncompressed with the first one.
#include <limits>

#include "yoke/comm/tensors/tensors.h"
#include "yoke/kernels/compress.h"
#include "yoke/parallel/common/ddp/hooks/feedback.h"
#include "yoke/parallel/common/ddp/hooks/hooks.h"
#include "yoke/parallel/common/ddp/hooks/thin_matrix.h"

namespace yoke::parallel {
namespace {

// A matrix of the bucket with its two thin factors, stored transposed: left [rank, rows], right [rank,
// columns].
struct Compressed {
  int64_t offset, rows, columns, rank;
  int64_t left_at, right_at;  // offsets in the send buffers
  bool usable = true;         // finite in this step
};
struct Plain {
  int64_t offset, size, left_at;
};

struct PowerState {
  Feedback feedback;
  std::vector<Compressed> matrices;
  std::vector<Plain> plain;
  torch::Tensor left, right;
  uint64_t step = 0;

  torch::Tensor matrix(const torch::Tensor& values, const Compressed& m) const {
    return values.narrow(0, m.offset, m.rows * m.columns).view({m.rows, m.columns});
  }
  torch::Tensor left_of(const Compressed& m) const {
    return left.narrow(0, m.left_at, m.rank * m.rows).view({m.rank, m.rows});
  }
  torch::Tensor right_of(const Compressed& m) const {
    return right.narrow(0, m.right_at, m.rank * m.columns).view({m.rank, m.columns});
  }
};

// Lets `body` modify a tensor in host memory, via a copy if it is on a device.
template <class Body>
void on_host(torch::Tensor tensor, Body&& body) {
  torch::Tensor host = tensor.cpu();
  with_type(host, [&](auto t) { body(host.data_ptr<decltype(t)>()); });
  if (!host.is_same(tensor)) tensor.copy_(host);
}

bool is_finite(const torch::Tensor& tensor) {
  if (!tensor.is_cpu()) return tensor.isfinite().all().item<bool>();
  bool finite = true;
  with_type(tensor,
            [&](auto t) { finite = all_finite(tensor.const_data_ptr<decltype(t)>(), tensor.numel()); });
  return finite;
}

void multiply(const Compressed& m, const torch::Tensor& left, const torch::Tensor& right, torch::Tensor out) {
  if (!out.is_cpu()) {
    torch::mm_out(out, left.t(), right);
    return;
  }
  // Not LibTorch's product: its bits may depend on the machine, and ranks must agree.
  with_type(out, [&](auto t) {
    using T = decltype(t);
    kernels::low_rank_product(left.const_data_ptr<T>(), right.const_data_ptr<T>(), out.data_ptr<T>(), m.rows,
                              m.columns, m.rank);
  });
}

class PowerSgdHook final : public CommHook {
 public:
  explicit PowerSgdHook(int64_t rank) : rank_(rank) {}

  bool advance(GradientBucket& bucket, int phase) override {
    torch::NoGradGuard no_grad;
    if (bucket.flat.numel() == 0) return false;
    PowerState& state = states_.of(bucket);
    if (phase == 0) {
      send_left(bucket, state);
      return true;
    }
    if (phase == 1 && send_right(bucket, state)) return true;
    if (phase == 2) receive(bucket, state);
    state.feedback.store(bucket);
    return false;
  }

  void forget_buckets() override { states_.forget(); }

 private:
  // Thin factors must at least halve the bytes: less is not worth the products.
  bool pays(int64_t rows, int64_t columns) const { return 2 * rank_ * (rows + columns) <= rows * columns; }

  void plan(const GradientBucket& bucket, PowerState& state) const {
    int64_t left = 0, right = 0;
    for (size_t i = 0; i < bucket.parts.size(); ++i) {
      const torch::Tensor& part = bucket.parts[i];
      int64_t rows = part.dim() < 2 || part.numel() == 0 ? 0 : part.size(0);
      int64_t columns = rows == 0 ? 0 : part.numel() / rows;
      if (rows > 0 && pays(rows, columns)) {
        state.matrices.push_back({bucket.offsets[i], rows, columns, rank_, left, right});
        left += rank_ * rows;
        right += rank_ * columns;
      } else {
        state.plain.push_back({bucket.offsets[i], part.numel(), 0});
      }
    }
    for (Plain& plain : state.plain) {
      plain.left_at = left;
      left += plain.size;
    }
    state.left = wire_tensor(bucket, left, working_type(bucket));
    state.right = wire_tensor(bucket, right, working_type(bucket)).zero_();
  }

  void all_reduce(GradientBucket& bucket, const torch::Tensor& buffer, const char* what) {
    comm::OpOptions options;
    std::string name = name_of(bucket, what);
    options.name = name;
    bucket.pending = bucket.comm->all_reduce(comm::buffer_of(buffer), ReduceOp::kSum, options);
  }

  void send_left(GradientBucket& bucket, PowerState& state) {
    if (!state.left.defined()) plan(bucket, state);
    const torch::Tensor& values = state.feedback.compensate(bucket);
    ++state.step;
    for (size_t i = 0; i < state.matrices.size(); ++i) {
      const Compressed& m = state.matrices[i];
      uint64_t seed = (static_cast<uint64_t>(bucket.index) << 40) + (state.step << 16) + i;
      torch::Tensor right = state.right_of(m), left = state.left_of(m);
      on_host(right, [&](auto* rows) { make_directions(rows, m.rank, m.columns, seed); });
      torch::mm_out(left, right, state.matrix(values, m).t());
    }
    for (const Plain& plain : state.plain)
      state.left.narrow(0, plain.left_at, plain.size).copy_(values.narrow(0, plain.offset, plain.size));
    all_reduce(bucket, state.left, "left factors");
    count(bucket, static_cast<int64_t>(state.left.nbytes() + state.right.nbytes()));
  }

  // Whether there is anything to send.
  bool send_right(GradientBucket& bucket, PowerState& state) {
    bucket.pending.wait();
    torch::Tensor& values = state.feedback.values();
    bool remember = is_finite(state.left);
    for (const Plain& plain : state.plain) {
      torch::Tensor out = values.narrow(0, plain.offset, plain.size);
      out.copy_(state.left.narrow(0, plain.left_at, plain.size)).div_(bucket.divisor);
    }
    for (Compressed& m : state.matrices) {
      torch::Tensor left = state.left_of(m), right = state.right_of(m);
      m.usable = remember || is_finite(left);
      if (!m.usable) {
        right.fill_(std::numeric_limits<double>::quiet_NaN());
        continue;
      }
      on_host(left, [&](auto* rows) { orthonormalise(rows, m.rank, m.rows); });
      torch::Tensor matrix = state.matrix(values, m);
      torch::mm_out(right, left, matrix);
      if (!remember) continue;
      torch::Tensor error = state.matrix(state.feedback.error(), m);
      torch::addmm_out(error, matrix, left.t(), right, 1, -1);
    }
    if (state.matrices.empty()) return false;
    all_reduce(bucket, state.right, "right factors");
    return true;
  }

  void receive(GradientBucket& bucket, PowerState& state) {
    bucket.pending.wait();
    state.right.div_(bucket.divisor);
    for (const Compressed& m : state.matrices)
      if (m.usable)
        multiply(m, state.left_of(m), state.right_of(m), state.matrix(state.feedback.values(), m));
      else
        state.matrix(state.feedback.values(), m).fill_(std::numeric_limits<double>::quiet_NaN());
  }

  int64_t rank_;
  StateOfBuckets<PowerState> states_;
};

}  // namespace

std::shared_ptr<CommHook> make_powersgd_hook(int64_t rank) {
  return std::make_shared<PowerSgdHook>(rank);
}

}  // namespace yoke::parallel
