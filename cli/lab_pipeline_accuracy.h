// The part of `yoke lab pipeline` that trains: accuracy against time for data parallel training and pipelines
// with as many workers, on slow links. Accuracies are those of real runs, times those of the simulators.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cli/lab.h"
#include "yoke/sim/pipeline.h"

namespace yoke::cli {

struct PipelineTiming {
  int workers = 2;                    // stages, or replicas
  double forward = 0, backward = 0;   // of a stage and micro-batch, seconds
  double bandwidth = 1, latency = 0;  // of a worker's link
};

// When a pipeline has finished each of `rounds` minibatches of `workers` micro-batches. Schedules that flush
// (gpipe, 1f1b) empty the pipeline after each; pipedream and 2bw do not. `micro_bytes`: of the activations of
// a micro-batch at a cut.
std::vector<double> pipeline_rounds(const PipelineTiming& timing, plan::ScheduleKind kind, double micro_bytes,
                                    int64_t rounds);

class PipelineAccuracy {
 public:
  // Reads --methods, --epochs, --bandwidth and --latency, and checks every run before the first starts.
  // Throws ConfigError.
  PipelineAccuracy(Lab& lab, int stages, double forward, double backward);
  ~PipelineAccuracy();
  PipelineAccuracy(const PipelineAccuracy&) = delete;
  PipelineAccuracy& operator=(const PipelineAccuracy&) = delete;

  size_t parts() const;  // 0: --epochs 0, nothing is trained
  void run();            // adds figures and a table to the page

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace yoke::cli
