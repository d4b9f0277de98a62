// The units of a fully sharded module at work: gathered before use, reduced when their gradients are there.
//
// use() is called before parameters are read, in forward and in backward; where, is the caller's choice (see
// fully_shard.h). A hook behind every parameter's gradient counts; a unit whose gradients are all there is
// reduced and released while backward goes on. At the end of backward() every average is in, and nothing is
// gathered any more.
//
// What a backward() that failed had sent cannot be taken back: the next use() is then an error of all ranks.
// One that has sent nothing may be repeated.
#pragma once

#include <deque>
#include <memory>
#include <unordered_map>
#include <vector>

#include "yoke/parallel/common/gradient_hooks.h"
#include "yoke/parallel/placement/sharded/owned_pieces.h"
#include "yoke/parallel/placement/sharded/residency.h"
#include "yoke/parallel/placement/sharded/unit.h"

namespace yoke::parallel {

class ShardedUnits {
 public:
  using Units = Residency::Units;

  ShardedUnits(const ShardedPart& part, const std::vector<UnitPlan>& plans, comm::Communicator& comm,
               const FullyShardOptions& options);
  ~ShardedUnits();
  ShardedUnits(const ShardedUnits&) = delete;
  ShardedUnits& operator=(const ShardedUnits&) = delete;

  // Returns when the parameters of these units can be read. Collective: all ranks use units in one order.
  void use(const Units& units);
  // Lets go of what is gathered: after a forward() without backward().
  void release_all();
  // The same before the backward of these units. Layers of compute/ find homes for their gradients.
  void use_in_backward(const Units& units);
  compute::GradientHomes& homes() { return homes_; }
  // Gathers everything until let_go(): use() does nothing meanwhile.
  void hold();
  void let_go() noexcept;
  // Reduces gradients that were made outside backward().
  void reduce_rest();
  // Shards have new values.
  void moved() { stale_ = true; }
  // A pass has failed on this rank. `sent`: earlier passes of the step had told other ranks something.
  void fail(bool sent);

  Units units_of(const std::vector<std::shared_ptr<torch::nn::Module>>& modules) const;
  const std::vector<std::unique_ptr<Unit>>& units() const { return units_; }
  OwnedPieces& pieces() { return *pieces_; }
  MemoryPool& pool() { return pool_; }
  comm::Communicator& comm() const { return comm_; }

  struct Times {
    double exposed = 0;  // waited for
    std::vector<comm::Pending::Timing> reductions;
  };
  Times take_times() { return std::exchange(times_, {}); }

 private:
  struct Watched {
    size_t unit;
    int arrivals = 0;  // in this backward()
    int expected = 1;  // more for a parameter in several recomputed parts
  };
  void watch(size_t unit, const torch::Tensor& parameter);
  void on_gradient(size_t watched);
  void begin_round();
  void end_round();
  void finish_backward();
  void complain_of_missing() const;
  void reduce(size_t unit);
  void finish_oldest();
  void refresh();
  [[noreturn]] void tell_of_failure();

  comm::Communicator& comm_;
  MemoryPool pool_;
  std::vector<std::unique_ptr<Unit>> units_;
  std::unique_ptr<OwnedPieces> pieces_;
  std::unordered_map<const void*, size_t> unit_of_;  // parameter
  Residency residency_;
  bool resident_ = true;
  bool stale_ = true;  // shards may have moved since they were gathered
  bool held_ = false;
  Units last_;

  std::vector<Watched> watched_;
  std::vector<std::string> names_;  // of watched parameters
  std::vector<size_t> waiting_;     // of each unit: parameters whose gradients are not all there
  GradientHooks gradient_hooks_;
  std::deque<size_t> in_flight_;
  compute::GradientHomes homes_;

  bool begun_ = false;         // a backward() that gives gradients
  bool sent_ = false;          // something of this pass
  bool broken_ = false;        // a pass has failed after that
  std::weak_ptr<void> round_;  // expired with begun_ set: that backward() has failed
  Times times_;
};

}  // namespace yoke::parallel
