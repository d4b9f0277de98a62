// Everything a program that uses Yoke needs. Each header below also stands alone.
#pragma once

#include <torch/torch.h>

#include "yoke/base/error.h"
#include "yoke/checkpoint/checkpoint.h"
#include "yoke/checkpoint/tensors.h"
#include "yoke/checkpoint/weights.h"
#include "yoke/comm/join.h"
#include "yoke/comm/tensors/autograd.h"
#include "yoke/comm/tensors/tensors.h"
#include "yoke/compute/precision.h"
#include "yoke/compute/recompute.h"
#include "yoke/data/loader.h"
#include "yoke/models/model.h"
#include "yoke/optim/clip.h"
#include "yoke/optim/grad_scaler.h"
#include "yoke/optim/optimizer.h"
#include "yoke/optim/schedule.h"
#include "yoke/parallel/data_parallel/data_parallel.h"
#include "yoke/parallel/ddp/distributed_data_parallel.h"
#include "yoke/parallel/ddp/sync_batchnorm.h"

namespace yoke {

using optim::GradScaler;
using optim::GradScalerOptions;

}  // namespace yoke
