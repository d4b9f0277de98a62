#include "yoke/metrics/catch_up.h"

#include <algorithm>

#include "yoke/metrics/jsonl.h"

namespace yoke::metrics {

void CatchUp::start(const RunInfo& info) {
  Fanout::start(info);
  if (recent_.empty()) return;
  const int64_t last = last_recorded_step(path_);
  for (const Record& record : recent_)
    if (record.step > last && record.step <= info.first_step) write(record);
  recent_.clear();
}

std::vector<Record> merge_records(std::vector<Record> one, const std::vector<Record>& other, size_t most) {
  one.insert(one.end(), other.begin(), other.end());
  std::ranges::stable_sort(one, {}, &Record::step);
  const auto same_step = [](const Record& a, const Record& b) { return a.step == b.step; };
  one.erase(std::unique(one.begin(), one.end(), same_step), one.end());
  if (one.size() > most) one.erase(one.begin(), one.end() - static_cast<std::ptrdiff_t>(most));
  return one;
}

}  // namespace yoke::metrics
