// parallel.partition = "auto": the parts of a model's nodes from measured times and sizes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "yoke/engine/worker.h"

namespace yoke::engine {

// Profiles the nodes of the worker's model on minibatches of `batch` samples and partitions them. Parts that
// cannot be balanced within 10 % are balanced as well as they can be; none is empty. Throws ConfigError where
// there are fewer nodes than parts. Requires a worker that has the whole model.
std::vector<int> measured_parts(const Worker& worker, int64_t batch, int parts);

// The parts that the file `partition` gives to the nodes of this model. Throws ConfigError where it is of
// another graph.
std::vector<int> parts_of_file(const models::ModelOptions& model, const std::string& file);

}  // namespace yoke::engine
