// A timeline for Perfetto and chrome://tracing (Trace Event Format, JSON).
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "yoke/base/clock.h"
#include "yoke/metrics/sink.h"

namespace yoke::metrics {

struct TraceOptions {
  int64_t rank = 0;
  int64_t world_size = 1;
  double zero = 0;  // now_seconds() at time 0 of the timeline, the same on all ranks; 0: construction
  // About 32 bytes of memory each. Later events are counted and dropped.
  int64_t most_events = 1'000'000;
};

// A named time interval, in seconds of now_seconds().
struct Span {
  std::string name{};      // "forward"
  std::string category{};  // "compute", "comm", "data", "checkpoint"
  std::string lane{};      // row: "main", "loader", "stream 7"
  double start = 0;
  double duration = 0;
};

// Collects spans in memory and writes them once. Records become counters (loss, samples/s).
class Trace : public Sink {
 public:
  // By default time 0 is the construction. Nothing is written before finish().
  explicit Trace(std::filesystem::path path, TraceOptions options = {});

  // Any thread.
  void add(const Span& span);
  int64_t dropped() const;

  void write(const Record& record) override;
  // Writes the file atomically; an error is logged with its path.
  void finish() override;

 private:
  struct Event {
    double start;
    double value;  // duration of a span, value of a counter
    uint32_t name;
    uint32_t category;
    uint32_t lane;  // kCounter for counters
  };
  static constexpr uint32_t kCounter = UINT32_MAX;

  void write_file() const;
  uint32_t number_of(const std::string& text);
  void append_event(std::string& out, const Event& event, const std::vector<std::string>& quoted) const;

  std::filesystem::path path_;
  TraceOptions options_;
  double zero_ = now_seconds();
  mutable std::mutex mutex_;  // guards the members below
  std::map<std::string, uint32_t> numbers_;
  std::map<uint32_t, uint32_t> lanes_;  // index of the name -> tid
  std::vector<Event> events_;
  int64_t dropped_ = 0;
};

// Adds a span from its construction to its destruction. Costs nothing if trace is nullptr.
class TraceScope {
 public:
  TraceScope(Trace* trace, const char* name, const char* category, const char* lane = "main")
      : trace_(trace), name_(name), category_(category), lane_(lane), start_(trace ? now_seconds() : 0) {}
  TraceScope(const TraceScope&) = delete;
  TraceScope& operator=(const TraceScope&) = delete;
  ~TraceScope() {
    if (trace_) trace_->add({name_, category_, lane_, start_, now_seconds() - start_});
  }

 private:
  Trace* trace_;
  const char* name_;
  const char* category_;
  const char* lane_;
  double start_;
};

}  // namespace yoke::metrics
