#include "yoke/metrics/trace_merge.h"

#include <algorithm>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "yoke/base/error.h"
#include "yoke/base/file.h"
#include "yoke/base/units.h"

namespace yoke::metrics {
namespace {

namespace fs = std::filesystem;

constexpr double kVisible = 50e-6;  // seconds

// One rank's part in a collective; microseconds.
struct Part {
  int64_t rank = 0, lane = 0;
  double start = 0, end = 0;
};

// The files in rank order, without gaps.
std::vector<fs::path> files_in(const fs::path& folder) {
  std::vector<fs::path> files;
  while (fs::exists(folder / fmt::format("rank-{}.json", files.size())))
    files.push_back(folder / fmt::format("rank-{}.json", files.size()));
  return files;
}

class Merge {
 public:
  explicit Merge(int ranks) : ranks_(ranks) {}

  // Our files have one event per line, between a first line that opens the list and a last one that closes
  // it.
  void read(const fs::path& path, int rank) {
    std::ifstream file(path);
    std::string line;
    int64_t number = 0;
    std::map<std::string, int64_t> turns;
    while (std::getline(file, line)) {
      ++number;
      if (number == 1 || line == "]}" || line.empty()) continue;
      if (line.back() == ',') line.pop_back();
      try {
        nlohmann::json event = nlohmann::json::parse(line);
        if (event.value("cat", "") == "comm") note(event, rank, turns);
      } catch (const nlohmann::json::exception&) {
        throw ConfigError("{}:{}: not an event of a trace of rank {}. Trace the run again with --trace.",
                          path.string(), number, rank);
      }
      out_ += (out_.empty() ? "" : ",\n") + line;
    }
  }

  MergedTrace finish(const fs::path& path) {
    MergedTrace merged;
    merged.path = path;
    merged.came_last.resize(static_cast<size_t>(ranks_));
    merged.behind_seconds.resize(static_cast<size_t>(ranks_));
    for (auto& [key, parts] : collectives_)
      if (static_cast<int>(parts.size()) == ranks_) add(parts, merged);
    for (double& seconds : merged.behind_seconds)
      if (merged.collectives > 0) seconds /= static_cast<double>(merged.collectives);
    write_file_atomically(path, "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n" + out_ + "\n]}\n");
    return merged;
  }

 private:
  // The rank is the file's: the event's own may be damaged.
  void note(const nlohmann::json& event, int rank, std::map<std::string, int64_t>& turns) {
    std::string name = event.at("name");
    double start = event.at("ts");
    collectives_[{turns[name]++, name}].push_back(
        {rank, event.at("tid"), start, start + event.at("dur").get<double>()});
  }

  void add(const std::vector<Part>& parts, MergedTrace& merged) {
    auto by_start = [](const Part& a, const Part& b) { return a.start < b.start; };
    const Part& last = *std::max_element(parts.begin(), parts.end(), by_start);
    const Part& first = *std::min_element(parts.begin(), parts.end(), by_start);
    ++merged.collectives;
    ++merged.came_last[static_cast<size_t>(last.rank)];
    for (const Part& part : parts)
      merged.behind_seconds[static_cast<size_t>(part.rank)] += (part.start - first.start) * 1e-6;
    for (const Part& part : parts) {
      if (part.rank == last.rank) continue;
      int64_t id = ++arrows_;
      // An arrow must end inside its target, and not before it starts.
      double end = std::max(last.start, part.end - 1e-3);
      arrow("s", id, last, last.start, "");
      arrow("f", id, part, end, ",\"bp\":\"e\"");
    }
  }

  void arrow(const char* phase, int64_t id, const Part& at, double when, const char* more) {
    out_ += fmt::format(
        ",\n{{\"ph\":\"{}\",\"name\":\"waits "
        "for\",\"cat\":\"comm\",\"id\":{},\"ts\":{:.3f},\"pid\":{},\"tid\":{}{}}}",
        phase, id, when, at.rank, at.lane, more);
  }

  int ranks_;
  std::string out_;
  std::map<std::pair<int64_t, std::string>, std::vector<Part>> collectives_;
  int64_t arrows_ = 0;
};

}  // namespace

std::optional<int> MergedTrace::straggler() const {
  if (collectives == 0) return std::nullopt;
  auto most = std::max_element(came_last.begin(), came_last.end()) - came_last.begin();
  auto rank = static_cast<size_t>(most);
  if (2 * came_last[rank] <= collectives || behind_seconds[rank] < kVisible) return std::nullopt;
  return static_cast<int>(most);
}

std::string MergedTrace::straggler_text() const {
  std::optional<int> rank = straggler();
  if (!rank) return "";
  auto index = static_cast<size_t>(*rank);
  return fmt::format("rank {} was last in {:.0f} % of {} reductions, {} behind the first", *rank,
                     100.0 * static_cast<double>(came_last[index]) / static_cast<double>(collectives),
                     collectives, format_duration(behind_seconds[index]));
}

std::optional<MergedTrace> merge_traces(const fs::path& folder) {
  std::vector<fs::path> files = files_in(folder);
  if (files.size() < 2) return std::nullopt;
  Merge merge(static_cast<int>(files.size()));
  for (size_t rank = 0; rank < files.size(); ++rank) merge.read(files[rank], static_cast<int>(rank));
  return merge.finish(folder / "all.json");
}

}  // namespace yoke::metrics
