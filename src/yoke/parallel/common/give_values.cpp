#include "yoke/parallel/common/give_values.h"

#include <torch/utils.h>

#include "yoke/comm/tensors/tensors.h"

namespace yoke::parallel {

void give_values(const NamedTensors& tensors, comm::Communicator& comm, int root) {
  torch::NoGradGuard no_grad;
  for (const auto& [name, tensor] : tensors) {
    if (tensor.numel() == 0) continue;
    // As bytes, because any type may be broadcast.
    torch::Tensor flat = tensor.detach().contiguous().reshape({-1});
    torch::Tensor bytes = flat.view(torch::kUInt8);
    comm::broadcast(comm, bytes, root, name);
    if (!flat.is_alias_of(tensor)) tensor.detach().copy_(flat.view(tensor.sizes()));
  }
}

}  // namespace yoke::parallel
