// Everything a program that uses Yoke needs. Each header below can also be included alone.
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
#include "yoke/data/distributed_sampler.h"
#include "yoke/data/loader.h"
#include "yoke/data/tensor_dataset.h"
#include "yoke/engine/parameter_hash.h"
#include "yoke/engine/run.h"
#include "yoke/engine/shard.h"
#include "yoke/models/model.h"
#include "yoke/models/wrap.h"
#include "yoke/optim/clip.h"
#include "yoke/optim/grad_scaler.h"
#include "yoke/optim/optimizer.h"
#include "yoke/optim/schedule.h"
#include "yoke/parallel/own_loop.h"

namespace yoke {

using data::register_data;
using models::register_model;
using models::wrap;
using models::wrap_graph;
using optim::GradScaler;
using optim::GradScalerOptions;
using parallel::DeviceMesh;
using parallel::Mesh;
using parallel::Pipeline;
using parallel::register_sync;
using PipelineOptions = parallel::OwnPipelineOptions;

}  // namespace yoke
