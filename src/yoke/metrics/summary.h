// summary.json: the result of a finished run. Field names are stable for scripts (docs/cli.md).
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "yoke/metrics/class_results.h"

namespace yoke::metrics {

struct StepSeconds {
  double median = 0;
  double p95 = 0;
};

// Number of ranks along each axis.
struct MeshSize {
  int64_t pipeline = 1, data = 1, tensor = 1;
};

// Memory of one rank, in bytes.
struct MemoryUse {
  int64_t parameters = 0;   // including buffers
  int64_t gradients = 0;    // between backward and update
  int64_t optimizer = 0;    // moments, fp32 masters
  int64_t activations = 0;  // and workspaces: the rest of the peak
  int64_t other = 0;        // on the CPU: the process without a model
};

// Bytes sent per step, by rank.
struct AxisBytes {
  std::vector<int64_t> pipeline{}, data{}, tensor{};
};

// Changes of an elastic job, as seen by the rank that wrote the summary.
struct ElasticSummary {
  int64_t epochs = 1;    // of membership
  int64_t losses = 0;    // of ranks
  int64_t joins = 0;     // of ranks into the running job
  int64_t repeated = 0;  // steps
  // Shards (parallel.zero): bytes that this rank has sent as copies, holds as copies, and has received where
  // shards were cut anew.
  int64_t copied_bytes = 0, copy_memory = 0, rebuilt_bytes = 0;
  struct Change {
    int64_t epoch = 0, step = 0, ranks = 0;
    double pause = 0;  // seconds from the error to the first finished step
    double at = 0;     // of that step, seconds since 1970
    std::string cause{};
  };
  std::vector<Change> changes{};
};

// What all of train.epochs takes, at the measured speed, without evaluations and checkpoints.
struct WholeTraining {
  double epochs = 0;
  double seconds = 0;
  std::optional<double> flops{};
};

// 10^15 operations a second for a day.
inline double pflop_days(double flops) {
  return flops / (1e15 * 24 * 3600);
}

struct Summary {
  std::string model{};
  std::string data{};
  std::string optimizer{};
  std::string precision{};
  std::string device{};
  std::string device_name{};  // "NVIDIA H200"; empty if unknown
  int64_t steps = 0;          // of the whole training, including earlier runs
  double epochs = 0;
  int64_t world_size = 1;
  double final_loss = 0;
  std::optional<double> accuracy{};
  std::optional<double> eval_loss{};
  std::optional<double> perplexity{};  // of a language model on the test set: exp(eval_loss)
  std::optional<double> top5_accuracy{};
  std::optional<ClassResults> classes{};  // of the last evaluation
  double samples_per_s = 0;
  std::optional<double> tokens_per_s{};
  StepSeconds step_seconds{};
  // Model FLOPs (forward and backward) of `steps`; empty if the model does not count them
  std::optional<double> train_flops{};
  std::optional<WholeTraining> whole_training{};
  int64_t parameters = 0;
  std::string parameter_hash{};
  double seconds = 0;                        // of this run
  std::vector<int64_t> peak_memory_bytes{};  // by rank
  std::optional<MeshSize> mesh{};
  std::vector<MemoryUse> memory{};  // by rank; rank 0 only if ranks are not in lockstep
  std::optional<AxisBytes> communication{};
  // Step time on one device / on all, with the same batch per device
  std::optional<double> scaling_efficiency{};
  std::optional<double> one_device_samples_per_s{};
  std::optional<int64_t> resumed_from{};  // step
  std::optional<ElasticSummary> elastic{};
  std::string started{};  // "2026-02-28T17:03:12Z"
  std::string command{};  // as typed
};

// Absent texts and optionals are absent keys; non-finite numbers become null.
nlohmann::ordered_json to_json(const Summary& summary);

// The inverse. Keys that scripts rely on are required, others may be missing. Throws ConfigError naming the
// field, without the file.
Summary parse_summary(const std::string& text);

// "2026-02-28T17:03:12Z" for seconds since 1970.
std::string utc_time(double wall_seconds);

}  // namespace yoke::metrics
