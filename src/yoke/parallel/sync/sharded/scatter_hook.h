// A bucket's way where every rank wants its own part of the average only: one reduce_scatter in place.
#pragma once

#include "yoke/parallel/sync/sharded/shard_hook.h"

namespace yoke::parallel {

class ScatterHook : public ShardHook {
 public:
  bool advance(GradientBucket& bucket, int phase) override;
  void begin_step() override {}  // a bucket is overwritten by the next backward()
};

}  // namespace yoke::parallel
