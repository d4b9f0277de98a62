// Who runs which blocks: stages and their replicas on ranks.
//
// Ranks count stages first: those of one stage are neighbours. A pipeline may stand there several times
// (`copies`), each with batches of its own; inside one, a stage may have replicas that take micro-batches in
// turn. All ranks of a stage hold the same weights.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "yoke/parallel/placement/stage/options.h"
#include "yoke/plan/schedules/schedule.h"

namespace yoke::parallel {

// Blocks first, first + 1, …, end - 1 of a model.
struct BlockRange {
  size_t first = 0;
  size_t end = 0;
  bool operator==(const BlockRange&) const = default;
};

// Where a rank stands.
struct PipelinePlace {
  int stage = 0;
  int replica = 0;  // of the stage, inside one pipeline
  int copy = 0;     // of the pipeline
  int worker = 0;   // of the schedule: by stage, then replica
};

struct PipelineLayout {
  plan::ScheduleRequest request;   // stages, chunks, micro-batches, replicas
  std::vector<BlockRange> blocks;  // of each virtual stage (chunk x stages + stage)
  int copies = 1;

  int workers() const;
  int ranks() const { return workers() * copies; }
  PipelinePlace place_of(int rank) const;
  int rank_of(int worker, int copy) const { return worker * copies + copy; }
  int stage_of_rank(int rank) const { return place_of(rank).stage; }
};

// "0-3,4-7" as `parts` ranges that cover `blocks` blocks in order. A single number is a range of one. Throws
// ConfigError naming what is wrong.
std::vector<BlockRange> parse_stages(const std::string& text, size_t blocks, size_t parts);

// The cut into `parts` ranges whose most expensive one is cheapest. Throws ConfigError where there are fewer
// blocks than parts.
std::vector<BlockRange> balanced_stages(const std::vector<double>& costs, size_t parts);

// The micro-batches of a batch of `samples` that the options ask for on `devices` devices. Throws ConfigError
// for more than samples.
int micro_batches(const PipelineOptions& options, int devices, int64_t samples);

// What the options ask for on `stages` stages (with `replicas` each; empty: one) and batches of `samples`.
// Throws ConfigError where it cannot be: unknown schedule, more micro-batches than samples, stages that do
// not fit the model.
PipelineLayout make_layout(const PipelineOptions& options, int stages, int copies,
                           const std::vector<double>& block_costs, int64_t samples,
                           std::vector<int> replicas = {});

}  // namespace yoke::parallel
