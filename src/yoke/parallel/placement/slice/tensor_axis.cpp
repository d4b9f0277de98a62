#include "yoke/parallel/placement/slice/tensor_axis.h"

#include "yoke/base/error.h"
#include "yoke/comm/tensors/tensors.h"

namespace yoke::parallel {
namespace {

using torch::Tensor;

comm::OpOptions options_of(const Tensor& tensor, const std::string& name) {
  comm::OpOptions options;
  options.name = name;
  options.shape = {tensor.sizes().data(), tensor.sizes().size()};
  return options;
}

void check_sequence(const Tensor& x, const std::string& layer) {
  if (x.dim() == 3) return;
  throw ConfigError(
      "parallel.sequence: layer '{}' computes on a tensor of {} dims, and [batch, sequence, width] is "
      "needed. "
      "Hint: tensor parallel without sequence.",
      layer, x.dim());
}

}  // namespace

// [batch, sequence, width] as [ranks, batch, part of the sequence, width]: a part is contiguous.
Tensor TensorAxis::by_ranks(const Tensor& x, const std::string& layer) const {
  check_sequence(x, layer);
  if (x.size(1) % size() != 0)
    throw ConfigError(
        "parallel.sequence: layer '{}' has sequences of {}, which {} ranks cannot share evenly. Hint: a "
        "length "
        "of {}, or tensor parallel without sequence.",
        layer, x.size(1), size(), x.size(1) / size() * size() + size());
  return x.reshape({x.size(0), size(), x.size(1) / size(), x.size(2)}).transpose(0, 1).contiguous();
}

Tensor TensorAxis::enter(const Tensor& x, const std::string& layer) const {
  if (!sequence_ || size() == 1) return x;
  check_sequence(x, layer);
  Tensor all = comm::all_gather(comm_, x.unsqueeze(0), layer);  // [ranks, batch, part, width]
  return all.transpose(0, 1).reshape({x.size(0), size() * x.size(1), x.size(2)});
}

Tensor TensorAxis::leave(const Tensor& y, const std::string& layer) const {
  return begin_leave(y, layer)();
}

std::function<Tensor()> TensorAxis::begin_leave(const Tensor& y, const std::string& layer) const {
  if (size() == 1) return [y] { return y; };
  at::NoGradGuard no_grad;
  if (!sequence_) {
    Tensor sum = y.contiguous();
    comm::Pending pending = comm_.all_reduce(comm::buffer_of(sum), ReduceOp::kSum, options_of(sum, layer));
    return [sum, pending] {
      pending.wait();
      return sum;
    };
  }
  Tensor parts = by_ranks(y, layer);
  Tensor part = at::empty({y.size(0), y.size(1) / size(), y.size(2)}, y.options());
  comm::Pending pending = comm_.reduce_scatter(comm::buffer_of(parts), comm::buffer_of(part), ReduceOp::kSum,
                                               options_of(parts, layer));
  return [parts, part, pending] {
    pending.wait();
    return part;
  };
}

Tensor TensorAxis::gather_features(const Tensor& x, const std::vector<int64_t>& sizes,
                                   const std::string& layer) const {
  // The first dimension is the one that ranks join.
  return comm::all_gather(comm_, x.transpose(0, 1), layer, sizes).transpose(0, 1).contiguous();
}

}  // namespace yoke::parallel
