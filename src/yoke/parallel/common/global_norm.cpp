#include "yoke/parallel/common/global_norm.h"

#include "yoke/comm/tensors/tensors.h"

namespace yoke::parallel {

std::vector<torch::Tensor> counted(const SliceAxis& axis, const std::vector<torch::Tensor>& parameters) {
  if (!axis) return parameters;
  std::vector<torch::Tensor> own;
  for (const torch::Tensor& one : parameters)
    if (axis.counts(one)) own.push_back(one);
  return own;
}

double sum_over(const SliceAxis& axis, double own) {
  if (!axis) return own;
  torch::Tensor sum = torch::tensor({own}, torch::kFloat64);
  comm::all_reduce(*axis.comm, sum, ReduceOp::kSum, "sum over slices");
  return sum.item<double>();
}

bool any_over(const SliceAxis& axis, bool own) {
  return sum_over(axis, own ? 1 : 0) > 0;
}

}  // namespace yoke::parallel
