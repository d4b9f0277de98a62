// Several sinks as one.
#pragma once

#include <filesystem>
#include <memory>
#include <vector>

#include "yoke/metrics/options.h"
#include "yoke/metrics/sink.h"

namespace yoke::metrics {

// Passes everything to its sinks, in the order they were added.
class Fanout : public Sink {
 public:
  void add(std::unique_ptr<Sink> sink) { sinks_.push_back(std::move(sink)); }

  void start(const RunInfo& info) override {
    for (auto& sink : sinks_) sink->start(info);
  }
  void tick(int64_t step, double samples_per_s) override {
    for (auto& sink : sinks_) sink->tick(step, samples_per_s);
  }
  void write(const Record& record) override {
    for (auto& sink : sinks_) sink->write(record);
  }
  void finish() override {
    for (auto& sink : sinks_) sink->finish();
  }

 private:
  std::vector<std::unique_ptr<Sink>> sinks_;
};

// The files that `options` requests in a run's folder: metrics.jsonl and TensorBoard events. The trace is not
// included: its owner records spans.
std::unique_ptr<Fanout> to_files(const std::filesystem::path& folder, const OutOptions& options);

}  // namespace yoke::metrics
