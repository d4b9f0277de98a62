// A strategy on a model whose layers are cut over the tensor axis: any other strategy, on the ranks that hold
// the same slices.
#pragma once

#include "yoke/parallel/common/forwarding.h"
#include "yoke/parallel/placement/slice/parallelize.h"

namespace yoke::parallel {

class SlicedStrategy : public Forwarding {
 public:
  // `inner` runs on the ranks of one tensor coordinate; `axis` are those that hold the other slices, `world`
  // all. All must outlive the strategy.
  SlicedStrategy(std::unique_ptr<Strategy> inner, const TensorParallel& cut, comm::Communicator& axis,
                 comm::Communicator& world);

  StepNews agree(const StepNews& here) override;
  DataShare share() const override;
  Traffic traffic() const override;
  comm::Communicator* team() const override { return &world_; }
  RunEnd finish(int64_t peak_memory) override;
  std::vector<StatePiece> gradients() override { return whole_coordinates(inner->gradients()); }
  std::vector<StatePiece> state() override { return whole_coordinates(inner->state()); }
  std::optional<std::string> first_non_finite_gradient() override;

 private:
  std::vector<StatePiece> whole_coordinates(std::vector<StatePiece> pieces) const;

  const TensorParallel& cut_;
  comm::Communicator& axis_;
  comm::Communicator& world_;
};

// A piece of a slice as a piece of the whole. Nullopt: the slice is empty.
std::optional<StatePiece> piece_of_slice(StatePiece piece, const TensorSlice& slice);

}  // namespace yoke::parallel
