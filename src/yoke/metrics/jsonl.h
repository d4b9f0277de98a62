// metrics.jsonl: one JSON object a line, one line a record.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "yoke/metrics/append_file.h"
#include "yoke/metrics/sink.h"

namespace yoke::metrics {

// What a metrics.jsonl holds. Steps are strictly increasing: where a run went back to a checkpoint, what it
// wrote again replaces what it had written before.
struct RecordFile {
  std::vector<Record> records;
  int64_t bad_lines = 0;       // lines that are no record
  int64_t first_bad_line = 0;  // counted from 1
  std::string first_error;
  bool torn_end = false;  // the last line is one of them, cut off while it was written
};

// Throws ConfigError where the file cannot be read; bad lines are counted, not thrown.
RecordFile read_records(const std::filesystem::path& path);

// Appends each record at once. A run that starts again at step S first cuts off what lies behind S, so that
// the file holds each step once and in order.
class JsonLines : public Sink {
 public:
  // Nothing is touched before start().
  explicit JsonLines(std::filesystem::path path) : path_(std::move(path)) {}

  // Reads what is there, rewrites it when something has to go (the old or the new file survives a crash),
  // opens it.
  void start(const RunInfo& info) override;
  void write(const Record& record) override;

 private:
  std::filesystem::path path_;
  std::optional<AppendFile> file_;
};

}  // namespace yoke::metrics
