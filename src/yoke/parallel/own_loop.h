// What a training loop of your own uses to spread over ranks: data parallel, sharded, sliced, pipelines, and
// the mesh they share.
#pragma once

#include "yoke/parallel/common/ddp/distributed_data_parallel.h"
#include "yoke/parallel/common/ddp/sync_batchnorm.h"
#include "yoke/parallel/device_mesh.h"
#include "yoke/parallel/maker.h"
#include "yoke/parallel/pipeline.h"
#include "yoke/parallel/placement/sharded/fully_shard.h"
#include "yoke/parallel/placement/slice/parallelize.h"
#include "yoke/parallel/schedule/threads/data_parallel.h"
#include "yoke/parallel/sync/sharded/zero_optimizer.h"
