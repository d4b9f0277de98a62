// A bucket's way where every rank wants its own part of the average only: one reduce_scatter.
#pragma once

#include <vector>

#include "yoke/parallel/ddp/comm_hook.h"

namespace yoke::parallel {

class ScatterHook : public CommHook {
 public:
  // keep: parts are copied out of the buckets, whose memory goes on to others, and those of several
  // micro-batches are added.
  explicit ScatterHook(bool keep) : keep_(keep) {}

  bool advance(GradientBucket& bucket, int phase) override;

  // The parts of a step are those that come after this.
  void begin_step();
  // This rank's part of the averages of a bucket. Valid until the next step.
  const torch::Tensor& part(size_t bucket) const { return parts_[bucket].values; }

 private:
  struct Part {
    torch::Tensor values;
    bool fresh = true;
  };
  bool keep_;
  std::vector<Part> parts_;
};

}  // namespace yoke::parallel
