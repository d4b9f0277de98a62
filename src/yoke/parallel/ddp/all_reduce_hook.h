// The plain way of a bucket: one all_reduce.
#pragma once

#include "yoke/parallel/ddp/comm_hook.h"

namespace yoke::parallel {

class AllReduceHook : public CommHook {
 public:
  bool advance(GradientBucket& bucket, int phase) override;
};

}  // namespace yoke::parallel
