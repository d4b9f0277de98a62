#include "yoke/parallel/common/replica.h"

#include <utility>

#include "yoke/comm/tensors/tensors.h"
#include "yoke/parallel/common/step_news.h"

namespace yoke::parallel {
namespace {

// An optimizer that reevaluates the loss must decide alike on all ranks: by the mean of their losses, and by
// rank 0's numbers where each rank has computed its own.
OneDeviceOptions with_loss_of_all(OneDeviceOptions options, comm::Communicator& comm) {
  if (comm.size() == 1) return options;
  options.mean_over_replicas = [&comm](const torch::Tensor& loss) {
    torch::Tensor mean = loss.detach().to(torch::kFloat64).reshape({1}).clone();
    comm::all_reduce(comm, mean, ReduceOp::kMean, "loss of a line step");
    return mean[0];
  };
  options.same_on_replicas = [&comm](const torch::Tensor& number) {
    torch::Tensor same = number.detach().reshape({-1}).clone();
    comm::broadcast(comm, same, 0, "number of a line step");
    return same.view(number.sizes());
  };
  return options;
}

// Every replica holds all of it.
std::vector<StatePiece> held_by_all(std::vector<StatePiece> pieces, const comm::Communicator& comm) {
  for (StatePiece& one : pieces) {
    one.holder = comm.rank();
    one.holders = comm.size();
  }
  return pieces;
}

}  // namespace

Replica::Replica(const models::Model& model, optim::Optimizer& optimizer, optim::GradScaler& scaler,
                 OneDeviceOptions options, comm::Communicator& comm)
    : comm_(comm),
      where_(options.device),
      device_(model, optimizer, scaler, with_loss_of_all(std::move(options), comm)) {}

void Replica::begin(int64_t) {
  comm_.barrier({.name = "start"}).wait();
}

StepNews Replica::agree(const StepNews& here) {
  return reduce_news(here, comm_, where_, comm_.size());
}

std::vector<StatePiece> Replica::gradients() {
  return held_by_all(device_.gradients(), comm_);
}

std::vector<StatePiece> Replica::state() {
  return held_by_all(device_.state(), comm_);
}

}  // namespace yoke::parallel
