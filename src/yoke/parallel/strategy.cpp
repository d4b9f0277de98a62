#include "yoke/parallel/strategy.h"

#include "yoke/comm/tensors/tensors.h"

namespace yoke::parallel {

RunEnd Strategy::finish(int64_t peak_memory) {
  RunEnd end;
  end.peak_memory = {peak_memory};
  if (comm::Communicator* all = team()) {
    torch::Tensor own = torch::tensor({peak_memory}, torch::kInt64);
    torch::Tensor memory = comm::all_gather(*all, own, "peak memory");
    end.peak_memory.assign(memory.const_data_ptr<int64_t>(),
                           memory.const_data_ptr<int64_t>() + memory.numel());
  }
  return end;
}

std::unique_ptr<Replay> Strategy::replay(const models::Model&, const optim::OptimizerOptions&) const {
  return nullptr;
}

}  // namespace yoke::parallel
