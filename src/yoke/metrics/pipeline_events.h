// pipeline.json: what the ranks of a pipeline did when, as the run measured it.
//
// {schedule, stages, microbatches, replicas?, chunks?, events[{rank, stage, kind, microbatch, chunk?, start,
// end}]}, seconds from any common moment. A stage from `stages` on is a later chunk of device stage % stages.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "yoke/metrics/timeline.h"

namespace yoke::metrics {

struct PipelineEvent {
  int rank = 0;
  int stage = 0;
  SpanKind kind = SpanKind::kForward;
  int microbatch = 0;
  int chunk = 0;
  double start = 0;
  double end = 0;
  bool operator==(const PipelineEvent&) const = default;
};

struct PipelineEvents {
  std::string schedule;
  int stages = 1;
  int microbatches = 1;  // of each minibatch
  int chunks = 1;        // of layers on each device
  // Ranks that share a stage's micro-batches, of each stage; empty: one each. Where the file does not say it,
  // ranks of one stage with different micro-batches are replicas, and those with the same ones copies.
  std::vector<int> replicas;
  std::vector<PipelineEvent> events;
  bool operator==(const PipelineEvents&) const = default;
};

std::string to_json(const PipelineEvents& events);

// Throws ConfigError with file, field and what is accepted: no events, counts out of range, times that are
// not finite or end before they start. Events come back sorted by rank and start.
PipelineEvents parse_pipeline_events(std::string_view text, const std::string& file_name);

// Only minibatch `number` (from 0), its micro-batches counted from 0. In a file they may be counted through
// or anew in each minibatch; read, they are counted through. `last_minibatch` is the newest of which every
// micro-batch has a backward pass on every stage; -1: there is none.
PipelineEvents minibatch_of(const PipelineEvents& events, int number);
int last_minibatch(const PipelineEvents& events);

// A row for each rank, in the order of stages; from the first pass (time 0) to the end of the last.
Timeline timeline_of(const PipelineEvents& events);

}  // namespace yoke::metrics
