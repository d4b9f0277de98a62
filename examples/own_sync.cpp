// A rule of your own for keeping replicas equal, trained and verified like those of yoke:
//   build/example_own_sync train configs/mlp_tiny.toml --nproc 2 --parallel.sync one_message
//   build/example_own_sync verify configs/mlp_tiny.toml --layouts "data=2,sync=one_message;
//   data=4,sync=one_message"
#include <yoke/comm/tensors/tensors.h>
#include <yoke/command.h>
#include <yoke/parallel/common/replica.h>

// All gradients in one message, when the whole backward pass is over: the plainest way to average them.
class OneMessage : public yoke::parallel::Replica {
 public:
  OneMessage(yoke::parallel::Kit& kit, yoke::parallel::OneDeviceOptions options,
             yoke::comm::Communicator& replicas)
      : Replica(kit.model, *kit.optimizer, kit.scaler, std::move(options), replicas),
        parameters_(kit.model.module->parameters()) {}

  yoke::parallel::ComputeResult compute(const std::vector<torch::Tensor>& inputs, const torch::Tensor& target,
                                        const yoke::parallel::MicroBatch& micro) override {
    auto result = Replica::compute(inputs, target, micro);
    if (micro.last) average();
    return result;
  }

 private:
  void average() {
    std::vector<torch::Tensor> gradients;
    for (torch::Tensor& parameter : parameters_)
      if (parameter.grad().defined()) gradients.push_back(parameter.grad());
    torch::Tensor all = torch::cat([&] {
      std::vector<torch::Tensor> flat;
      for (torch::Tensor& one : gradients) flat.push_back(one.reshape({-1}));
      return flat;
    }());
    yoke::comm::all_reduce(comm(), all, yoke::ReduceOp::kMean, "all gradients");
    int64_t at = 0;
    for (torch::Tensor& one : gradients) {
      one.copy_(all.narrow(0, at, one.numel()).view(one.sizes()));
      at += one.numel();
    }
  }

  std::vector<torch::Tensor> parameters_;
};

int main(int argc, char** argv) {
  yoke::register_sync("one_message", "averages all gradients in one message after the backward pass",
                      [](auto& kit, auto& options, auto& replicas) {
                        return std::make_unique<OneMessage>(kit, options, replicas);
                      });
  return yoke::run_command(argc, argv);
}
