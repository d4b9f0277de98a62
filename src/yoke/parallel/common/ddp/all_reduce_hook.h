// The default hook: one all_reduce per bucket.
#pragma once

#include "yoke/parallel/common/ddp/comm_hook.h"

namespace yoke::parallel {

class AllReduceHook : public CommHook {
 public:
  bool advance(GradientBucket& bucket, int phase) override;
};

}  // namespace yoke::parallel
