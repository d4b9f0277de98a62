#include "yoke/metrics/jsonl.h"

#include <nlohmann/json.hpp>
#include <string_view>
#include <system_error>

#include "yoke/base/error.h"
#include "yoke/base/fault.h"
#include "yoke/base/file.h"
#include "yoke/base/log.h"

namespace yoke::metrics {
namespace {

constexpr int64_t kLargestFile = int64_t{4} << 30;

void add_line(RecordFile& file, std::string_view line, int64_t number) {
  try {
    Record record = parse_record(std::string(line));
    while (!file.records.empty() && file.records.back().step >= record.step) file.records.pop_back();
    file.records.push_back(record);
  } catch (const ConfigError& error) {  // a damaged line costs that line, not the others
    if (file.bad_lines++ == 0) {
      file.first_bad_line = number;
      file.first_error = error.what();
    }
  }
}

RecordFile parse_records(std::string_view text) {
  RecordFile file;
  for (int64_t number = 1; !text.empty(); ++number) {
    size_t end = text.find('\n');
    int64_t bad_before = file.bad_lines;
    std::string_view line = text.substr(0, end);
    if (!line.empty()) add_line(file, line, number);
    if (end == std::string_view::npos) {
      file.torn_end = file.bad_lines > bad_before;
      break;
    }
    text.remove_prefix(end + 1);
  }
  return file;
}

// What stays of a file of which records up to a step are kept.
struct Kept {
  int64_t step = 0;  // of its last record; 0: there is none
  size_t bytes = 0;
  bool ends_line = true;  // the last byte is a newline
  int64_t bad_lines = 0;  // dropped; a torn end does not count
  std::string last_error;
};

// From the end, as far as it must: runs may be long.
Kept kept_up_to(int64_t step, std::string_view text) {
  Kept kept;
  while (!text.empty()) {
    const bool whole = text.ends_with('\n');
    const std::string_view line = text.substr(0, text.size() - (whole ? 1 : 0));
    const size_t begin = line.rfind('\n') + 1;  // 0 if there is none before
    try {
      if (begin < line.size()) {
        const Record record = parse_record(std::string(line.substr(begin)));
        if (record.step <= step) {
          kept.step = record.step;
          kept.bytes = text.size();
          kept.ends_line = whole;
          return kept;
        }
      }
    } catch (const ConfigError& error) {
      kept.bad_lines += whole;
      if (whole) kept.last_error = error.what();
    }
    text = text.substr(0, begin);
  }
  return kept;
}

Kept kept_up_to(int64_t step, const std::filesystem::path& path) {
  const MappedFile file(path);
  return kept_up_to(step, file.view());
}

bool is_file(const std::filesystem::path& path) {
  std::error_code none;
  return std::filesystem::is_regular_file(path, none);
}

// False: the last line has no newline yet.
bool cut_behind(const std::filesystem::path& path, int64_t step) {
  if (!is_file(path)) return true;
  const Kept kept = step > 0 ? kept_up_to(step, path) : Kept();  // from the start: all is replaced
  if (kept.bad_lines > 0)
    log::warn("{}: {} {} such line(s) at its end are dropped.", path.string(), kept.last_error,
              kept.bad_lines);
  std::error_code error;
  const bool cut = kept.bytes < std::filesystem::file_size(path, error);
  if (!error && cut) std::filesystem::resize_file(path, kept.bytes, error);
  if (error)
    throw ConfigError("{}: cannot write: {}. Choose another folder with --out.dir.", path.string(),
                      error.message());
  return kept.ends_line;
}

}  // namespace

RecordFile read_records(const std::filesystem::path& path) {
  return parse_records(read_file(path, kLargestFile));
}

int64_t last_recorded_step(const std::filesystem::path& path) {
  return is_file(path) ? kept_up_to(INT64_MAX, path).step : 0;
}

void JsonLines::start(const RunInfo& info) {
  const bool ends_line = cut_behind(path_, info.first_step);
  file_.emplace(path_);
  if (!ends_line) file_->keep("\n");
}

void JsonLines::write(const Record& record) {
  YOKE_CHECK(file_.has_value(), "{}: write before start", path_.string());
  fault::at(fault::Point::kMetricsRecord);
  file_->keep(to_json(record).dump() + "\n");
}

}  // namespace yoke::metrics
