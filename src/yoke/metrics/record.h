// One logged step. Written by train, bench and simulate alike.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <nlohmann/json_fwd.hpp>

namespace yoke::metrics {

// How the time of a step was spent, in seconds, on average since the last record.
struct TimeSplit {
  double data = 0;  // waiting for the batch
  double forward = 0;
  double backward = 0;
  double communication = 0;  // exposed: waiting after backward had nothing left to compute
  double update = 0;         // clipping and optimizer
  double other = 0;          // hooks, logging, checkpointing
};

struct Record {
  int64_t step = 0;  // completed optimizer steps
  double epoch = 0;  // completed epochs, fractional
  double time = 0;   // seconds since this process started the run
  double loss = 0;   // mean since the last record
  double lr = 0;
  int64_t samples = 0;       // since step 0
  double samples_per_s = 0;  // since the last record
  std::optional<double> tokens_per_s{};
  std::optional<double> grad_norm{};
  std::optional<double> loss_scale{};
  std::optional<double> noise_scale{};    // critical batch size, in samples
  std::optional<double> comm_seconds{};   // per step: communication in flight
  std::optional<double> accuracy{};       // on the test set, if this step was evaluated
  std::optional<double> eval_loss{};      // on the test set
  std::optional<int64_t> memory_bytes{};  // peak so far
  std::optional<TimeSplit> split{};       // seconds per step
};

// One line of metrics.jsonl, keys in the order above. Absent optionals are absent keys; non-finite numbers
// become null.
nlohmann::ordered_json to_json(const Record& record);
// The inverse; null becomes NaN, unknown keys are ignored. Throws ConfigError for a malformed line, without
// file and line number.
Record parse_record(const std::string& line);

}  // namespace yoke::metrics
