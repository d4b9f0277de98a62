#include "yoke/metrics/jsonl.h"

#include <nlohmann/json.hpp>
#include <string_view>
#include <system_error>

#include "yoke/base/error.h"
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

std::string to_lines(const std::vector<Record>& records) {
  std::string text;
  for (const Record& record : records) text += to_json(record).dump() + "\n";
  return text;
}

void cut_behind(const std::filesystem::path& path, int64_t step) {
  std::error_code none;
  if (!std::filesystem::is_regular_file(path, none)) return;
  const std::string before = read_file(path, kLargestFile);
  RecordFile file = parse_records(before);
  int64_t other_lines = file.bad_lines - (file.torn_end ? 1 : 0);
  if (step > 0 && other_lines > 0) {
    log::warn("{}:{}: {} {} such line(s) are dropped.", path.string(), file.first_bad_line, file.first_error,
              other_lines);
  }
  // A run from the start replaces everything, an evaluation at step 0 included.
  if (step == 0) file.records.clear();
  while (!file.records.empty() && file.records.back().step > step) file.records.pop_back();
  const std::string after = to_lines(file.records);
  if (after != before) write_file_atomically(path, after);
}

}  // namespace

RecordFile read_records(const std::filesystem::path& path) {
  return parse_records(read_file(path, kLargestFile));
}

void JsonLines::start(const RunInfo& info) {
  cut_behind(path_, info.first_step);
  file_.emplace(path_);
}

void JsonLines::write(const Record& record) {
  YOKE_CHECK(file_.has_value(), "{}: write before start", path_.string());
  file_->keep(to_json(record).dump() + "\n");
}

}  // namespace yoke::metrics
