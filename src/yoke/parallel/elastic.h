// Which runs can be elastic, and how they are laid out: ranks may die, leave and return
// (docs/design/elastic.md).
#pragma once

#include <cstdint>
#include <string>

#include "yoke/parallel/choices.h"

namespace yoke::parallel {

// Throws ConfigError that names what excludes it: anything that places state on one rank only and cannot be
// copied after a step, or whose ranks connect in a way that cannot be repeated. `gpu`: trains on GPUs, which
// communicate over NCCL by default.
void check_elastic(const Choices& choices, const std::string& optimizer, bool gpu);

// Whether a rank alone holds a part of the state: a shard (parallel.zero) or a stage.
bool divides_state(const Choices& choices);

// What was asked for, on the ranks that there are: as many stages as ranks suffice for, then as many
// replicas; ranks that are left over are spares. Fewer stages than asked for are cut anew, by their work. The
// number of micro-batches stays that of all stages, which keeps results comparable. `batch_size`:
// data.batch_size. Unchanged without a pipeline. Throws ConfigError for more micro-batches than samples.
Choices fit_to_ranks(const Choices& asked, int64_t batch_size, int ranks);

// Throws ConfigError if a job starts with fewer ranks than it has stages and replicas.
void check_elastic_start(const Choices& asked, int ranks);

}  // namespace yoke::parallel
