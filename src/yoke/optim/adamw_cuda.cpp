#include "yoke/optim/adamw_on_cuda.h"

#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <map>

#include "yoke/kernels/cuda/adamw.h"
#include "yoke/kernels/cuda/have_kernels.h"
#include "yoke/kernels/cuda/numbers.h"

namespace yoke::optim {
namespace {

using kernels::CudaNumber;

bool takes(const torch::Tensor& parameter) {
  const torch::Tensor& gradient = parameter.grad();
  if (!kernels::cuda_number(parameter.scalar_type())) return false;
  return !gradient.defined() || (!gradient.is_sparse() && gradient.scalar_type() == parameter.scalar_type() &&
                                 gradient.strides() == parameter.strides());
}

}  // namespace

bool update_on_cuda(const ParameterList& list, const AdamWState& state, const OptimizerOptions& options) {
  if (!kernels::have_cuda_kernels() || !list.device().is_cuda()) return false;
  for (size_t i = 0; i < list.size(); ++i)
    if (!takes(list.parameter(i))) return false;
  c10::cuda::CUDAGuard guard(list.device());
  std::map<CudaNumber, std::vector<kernels::CudaAdamWParameter>> groups;
  std::vector<size_t> indices;
  for (size_t i = 0; i < list.size(); ++i)
    if (list.parameter(i).grad().defined()) indices.push_back(i);
  state.steps.advance(indices, state.skip);
  std::vector<torch::Tensor> steps = state.steps.select(indices);
  for (size_t at = 0; at < indices.size(); ++at) {
    const size_t i = indices[at];
    const torch::Tensor &parameter = list.parameter(i), &master = list.target(i);
    groups[*kernels::cuda_number(parameter.scalar_type())].push_back(
        {parameter.grad().const_data_ptr(), master.is_same(parameter) ? nullptr : parameter.data_ptr(),
         master.data_ptr<float>(), state.mean[i].data_ptr<float>(), state.mean_square[i].data_ptr<float>(),
         steps[at].const_data_ptr<float>(), parameter.numel()});
  }
  auto scalar = [](const std::optional<torch::Tensor>& value) {
    return value ? value->const_data_ptr<float>() : nullptr;
  };
  for (const auto& [type, parameters] : groups)
    kernels::adamw({type, state.lr.const_data_ptr<float>(), scalar(state.divisor), scalar(state.skip),
                    options.beta1, options.beta2, options.eps, options.weight_decay,
                    c10::cuda::getCurrentCUDAStream(list.device().index()).stream()},
                   parameters);
  return true;
}

}  // namespace yoke::optim
