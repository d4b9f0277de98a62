// Whether a configuration fits a number of workers and its model, known before any rank starts. Needs no
// LibTorch.
#pragma once

#include <cstdint>

#include "yoke/models/options.h"
#include "yoke/parallel/choices.h"
#include "yoke/parallel/mesh.h"
#include "yoke/plan/pipeline/plan.h"

namespace yoke::parallel {

// The mesh of that many workers, without spares (Choices::spares). A plan counts with its stages and their
// replicas once they are known (Choices::stage_replicas). Throws ConfigError, naming the nearest numbers that
// fit.
Mesh mesh_of(const Choices& choices, int workers);

// The number of parts that parallel.partition makes of the model on `workers` workers: that of its file,
// parallel.pipeline, or what parallel.data leaves of the workers. Throws ConfigError if they do not fit, or
// the file is not a partition.
int parts_of(const Choices& choices, int workers);

// The model that is to be trained, as far as its placement goes.
struct Shape {
  const models::ModelOptions& model;
  int64_t batch_size = 1;  // of a replica
};

// Throws ConfigError where parallel.data, parallel.pipeline, parallel.tensor or parallel.plan (where it is a
// file) do not fit the workers, or stages and micro-batches do not fit the model.
void check_workers(const Choices& choices, const Shape& shape, int workers);

// The same of a plan.
void check_plan(const Choices& choices, const Shape& shape, const plan::PipelinePlan& plan, int workers);

}  // namespace yoke::parallel
