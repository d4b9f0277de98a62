// metrics.jsonl: one JSON object per line, one line per record.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "yoke/metrics/append_file.h"
#include "yoke/metrics/sink.h"

namespace yoke::metrics {

// Contents of a metrics.jsonl. Steps are strictly increasing: if a run went back to a checkpoint, its new
// records replace the old ones.
struct RecordFile {
  std::vector<Record> records;
  int64_t bad_lines = 0;       // invalid lines
  int64_t first_bad_line = 0;  // counted from 1
  std::string first_error;
  bool torn_end = false;  // the last line is one of them, truncated while it was written
};

// Throws ConfigError if the file cannot be read; invalid lines are counted, not thrown.
RecordFile read_records(const std::filesystem::path& path);

// Of the last valid record; 0: there is none. Reads the end of the file only.
int64_t last_recorded_step(const std::filesystem::path& path);

// Appends each record immediately. A run that starts again at step S first removes records after S, so that
// the file contains each step once and in order.
class JsonLines : public Sink {
 public:
  // Touches nothing before start().
  explicit JsonLines(std::filesystem::path path) : path_(std::move(path)) {}

  // Cuts off what is behind the step it starts from, and opens the file. Takes no longer for a longer file.
  void start(const RunInfo& info) override;
  void write(const Record& record) override;

 private:
  std::filesystem::path path_;
  std::optional<AppendFile> file_;
};

}  // namespace yoke::metrics
