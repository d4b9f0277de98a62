// pipeline.json: what the ranks of a pipeline executed when, as measured by the run.
//
// {schedule, stages, microbatches, replicas?, chunks?, events[{rank, stage, kind, microbatch, chunk?, start,
// end}]}, in seconds from a common origin. A stage >= `stages` is a later chunk of device stage % stages.
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
  int microbatches = 1;  // per minibatch
  int chunks = 1;        // of layers per device
  // Ranks that share a stage's micro-batches, per stage; empty: one each. If the file does not say: ranks of
  // one stage with different micro-batches are replicas, those with the same ones copies.
  std::vector<int> replicas;
  std::vector<PipelineEvent> events;
  bool operator==(const PipelineEvents&) const = default;
};

std::string to_json(const PipelineEvents& events);

// Throws ConfigError with file, field and what is accepted: no events, counts out of range, times not finite
// or ending before they start. Events are returned sorted by rank and start.
PipelineEvents parse_pipeline_events(std::string_view text, const std::string& file_name);

// Only minibatch `number` (from 0), its micro-batches counted from 0. In a file they may be counted
// continuously or per minibatch; here continuously. `last_minibatch` is the newest with a backward pass of
// every micro-batch on every stage; -1: none.
PipelineEvents minibatch_of(const PipelineEvents& events, int number);
int last_minibatch(const PipelineEvents& events);

// One row per rank, ordered by stage; from the first pass (time 0) to the end of the last.
Timeline timeline_of(const PipelineEvents& events);

}  // namespace yoke::metrics
