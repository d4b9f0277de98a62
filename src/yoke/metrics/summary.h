// summary.json: what a finished run came to. Field names are a promise to scripts (docs/cli.md).
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

namespace yoke::metrics {

struct StepSeconds {
  double median = 0;
  double p95 = 0;
};

struct Summary {
  std::string model{};
  std::string data{};
  std::string optimizer{};
  std::string precision{};
  std::string device{};
  std::string device_name{};  // "NVIDIA H200"; empty where it is not known
  int64_t steps = 0;          // of the whole training, earlier runs included
  double epochs = 0;
  int64_t world_size = 1;
  double final_loss = 0;
  std::optional<double> accuracy{};
  std::optional<double> eval_loss{};
  double samples_per_s = 0;
  std::optional<double> tokens_per_s{};
  StepSeconds step_seconds{};
  int64_t parameters = 0;
  std::string parameter_hash{};
  double seconds = 0;                          // of this run
  std::vector<int64_t> peak_memory_bytes{};    // by rank
  std::optional<double> scaling_efficiency{};  // step on one device / step on all, same batch each
  std::optional<double> one_device_samples_per_s{};
  std::optional<int64_t> resumed_from{};  // step
  std::string started{};                  // "2026-02-28T17:03:12Z"
  std::string command{};                  // as typed
};

// Texts and optionals that are absent are absent keys; non-finite numbers become null.
nlohmann::ordered_json to_json(const Summary& summary);

// Reads such a document back. The keys that design and scripts rely on must be there, the others may be
// missing. Throws ConfigError naming the field; the caller knows the file.
Summary parse_summary(const std::string& text);

// "2026-02-28T17:03:12Z" for seconds since 1970.
std::string utc_time(double wall_seconds);

}  // namespace yoke::metrics
