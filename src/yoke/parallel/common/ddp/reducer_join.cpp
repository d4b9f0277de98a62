// Uneven inputs and sparse gradients.
#include <fmt/format.h>

#include "yoke/base/error.h"
#include "yoke/comm/tensors/tensors.h"
#include "yoke/parallel/common/ddp/reducer.h"

namespace yoke::parallel {

// Runs before every round under join(): ranks with a batch and ranks without one meet here, and agree on the
// divisor.
int Reducer::active_ranks(bool this_one) {
  torch::Tensor active = torch::tensor({this_one ? 1 : 0}, torch::kInt32).to(device());
  comm::all_reduce(comm_, active, ReduceOp::kSum, "ranks with data");
  return active.item<int32_t>();
}

void Reducer::join(const std::function<void()>& loop) {
  if (comm_.size() == 1) return loop();
  joining_ = true;
  steps_ = 0;
  try {
    loop();
  } catch (...) {
    joining_ = false;
    throw;
  }
  int64_t own_steps = steps_;
  while ((divisor_ = active_ranks(false)) > 0) {
    start_counting();
    finish(/*shadow=*/true);
  }
  joining_ = false;
  // Ranks that finished early have missed updates.
  torch::Tensor mine = torch::tensor({own_steps}, torch::kInt64).to(device());
  torch::Tensor steps = comm::all_gather(comm_, mine, "steps of each rank").cpu();
  int root = static_cast<int>(steps.argmax().item<int64_t>());
  give_values(parameters_, comm_, root);
  give_values(buffers_, comm_, root);
}

// The concatenated rows of all ranks are the sum: a sparse tensor may contain a row several times.
void Reducer::reduce_sparse(bool shadow) {
  torch::NoGradGuard no_grad;
  for (SparseParameter& one : sparse_) {
    torch::Tensor& gradient = one.parameter.mutable_grad();
    int64_t width = one.parameter.numel() / std::max<int64_t>(1, one.parameter.size(0));
    auto options = one.parameter.options().requires_grad(false);
    torch::Tensor rows = torch::empty({0}, options.dtype(torch::kInt64));
    torch::Tensor values = torch::empty({0, width}, options);
    if (gradient.defined() && one.arrived) {
      YOKE_CHECK(gradient.is_sparse(), "parameter {}: a sparse embedding with a dense gradient", one.name);
      torch::Tensor merged = gradient.coalesce();
      rows = merged.indices()[0].contiguous();
      values = merged.values().reshape({-1, width}).contiguous();
    }
    torch::Tensor own = torch::tensor({rows.size(0)}, torch::kInt64).to(device());
    torch::Tensor all = comm::all_gather(comm_, own, one.name + ": rows").cpu();
    std::vector<int64_t> counts(all.const_data_ptr<int64_t>(), all.const_data_ptr<int64_t>() + comm_.size());
    torch::Tensor all_rows = comm::all_gather(comm_, rows, one.name + ": row numbers", counts);
    torch::Tensor all_values = comm::all_gather(comm_, values, one.name + ": values", counts);
    std::vector<int64_t> shape = one.parameter.sizes().vec();
    shape[0] = all_rows.size(0);
    if (shadow) continue;
    torch::Tensor mean = all_values.view(shape).div(divisor_);
    gradient = torch::sparse_coo_tensor(all_rows.unsqueeze(0), mean, one.parameter.sizes()).coalesce();
  }
}

}  // namespace yoke::parallel
