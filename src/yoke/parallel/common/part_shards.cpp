#include "yoke/parallel/common/part_shards.h"

#include "yoke/parallel/placement/sharded/sharded_units.h"

namespace yoke::parallel {

void PartShards::await_parameters() const {
  if (shards != nullptr) shards->wait_for_all();
}

void PartShards::forget_gradients() const {
  if (shards == nullptr) return;
  for (const auto& [name, parameter] : shards->parameters()) parameter.mutable_grad().reset();
}

void PartShards::share_updates() const {
  if (shards != nullptr) shards->begin_gather();
  if (fully != nullptr) fully->units().moved();
}

void PartShards::reduce_rest() const {
  if (fully != nullptr) fully->units().reduce_rest();
}

void PartShards::release() const {
  if (fully != nullptr) fully->release();
}

void note_times(FullyShard& fully, Communication& communication) {
  ShardedUnits::Times times = fully.units().take_times();
  for (const comm::Pending::Timing& one : times.reductions) {
    communication.seconds += one.ended - one.started;
    communication.buckets.push_back({one.started, one.ended});
  }
  communication.exposed += times.exposed;
}

}  // namespace yoke::parallel
