// Parameters that are gathered, released and reduced together: one flat run of elements, of which every rank
// owns an equal part.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "yoke/compute/gradient_home.h"
#include "yoke/optim/optimizer.h"
#include "yoke/parallel/placement/sharded/flat_storage.h"
#include "yoke/parallel/placement/sharded/memory_pool.h"
#include "yoke/parallel/placement/sharded/options.h"
#include "yoke/parallel/placement/sharded/unit_plan.h"

namespace yoke::parallel {

class Unit {
 public:
  // Collective. Cuts the parameters (all ranks have the same values) and frees them: afterwards they are
  // views of this unit's storage, whose memory comes with gather().
  Unit(const UnitPlan& plan, size_t number, const NamedTensors& parameters, comm::Communicator& comm,
       MemoryPool& pool, const FullyShardOptions& options);
  ~Unit();  // waits: memory must stay while data moves
  Unit(const Unit&) = delete;
  Unit& operator=(const Unit&) = delete;

  const std::string& name() const { return name_; }
  bool trained() const { return trained_; }
  const NamedTensors& parameters() const { return parameters_; }
  const c10::StorageImpl* key() const { return storage_.key(); }
  int64_t gathered_bytes() const { return storage_.bytes(); }
  int64_t shard_bytes() const { return static_cast<int64_t>(shard_.nbytes()); }

  // What this rank owns, for an optimizer: in host memory where it is offloaded.
  const torch::Tensor& shard() const { return shard_; }
  // All ranks use the same memory, or there is one rank: gather() and release() do nothing.
  bool resident() const { return resident_; }

  // The shard has moved: copies of it are made anew. Before the next gather().
  void refresh();
  void begin_gather();
  void gather();  // returns when the parameters can be read; begins where it has not begun
  void release();
  bool present() const { return storage_.present(); }

  // Layers of compute/ write gradients where they will be reduced, from here to begin_reduce().
  void make_homes(compute::GradientHomes& homes);
  // Averages (or sums) the parameters' gradients over the ranks and takes them away from the parameters.
  // Those that are absent count as zeros.
  void begin_reduce(compute::GradientHomes& homes);
  bool reducing() const { return reduces_; }
  // This rank's part of the result, in the type they were reduced in. Valid until drop_reduced().
  torch::Tensor finish_reduce();
  void drop_reduced();
  comm::Pending::Timing reduce_timing() const { return reducing_.timing(); }

  // Whole copies of every parameter, on every rank. Collective.
  std::vector<torch::Tensor> full() { return assemble(shard_); }
  // The same of another tensor that is cut as the shard is.
  std::vector<torch::Tensor> assemble(const torch::Tensor& part);
  // This rank's part of whole parameters, by name.
  void load(const std::map<std::string, torch::Tensor>& whole);

 private:
  torch::Tensor own_part(const torch::Tensor& flat) const;
  torch::Tensor gradients();  // memory for all of them, of the type they are reduced in
  void fill_gradients(const torch::Tensor& flat);
  bool cast() const { return reduced_as_.dtype() != storage_.options().dtype(); }

  std::string name_;
  size_t number_;
  comm::Communicator& comm_;
  MemoryPool& pool_;
  NamedTensors parameters_;
  std::vector<int64_t> offsets_;
  int64_t filled_ = 0;
  int64_t part_ = 0;
  bool trained_;
  bool average_;
  bool resident_ = false;
  FlatStorage storage_;
  torch::TensorOptions reduced_as_;
  torch::Tensor shard_;
  torch::Tensor near_;  // a copy of the shard on the device (offload = optimizer)
  comm::Memory gather_memory_, reduce_memory_;
  comm::Pending gathering_, reducing_;
  bool reduces_ = false;
};

}  // namespace yoke::parallel
