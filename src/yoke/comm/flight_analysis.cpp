#include "yoke/comm/flight_analysis.h"

#include <algorithm>
#include <map>
#include <set>

#include <nlohmann/json.hpp>

#include "yoke/base/error.h"
#include "yoke/base/file.h"

namespace yoke::comm {
namespace {

constexpr int64_t kMaxRecordBytes = 16 << 20;

constexpr int64_t kMaxRanks = 1 << 24;
constexpr size_t kMaxDepth = 8;

// Fields of one file; a missing field or one of another type is an error that names file and field.
class Fields {
 public:
  Fields(const nlohmann::json& object, const std::string& file) : object_(object), file_(file) {
    if (!object.is_object()) fail("an object is missing");
  }

  int64_t number(const char* key, int64_t low, int64_t high) const {
    const nlohmann::json& value = field(key);
    bool small = value.is_number_integer() &&
                 !(value.is_number_unsigned() && value.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX));
    if (!small || value.get<int64_t>() < low || value.get<int64_t>() > high)
      fail(fmt::format("'{}' is not an integer from {} to {}", key, low, high));
    return value.get<int64_t>();
  }
  std::string text(const char* key) const {
    const nlohmann::json& value = field(key);
    if (!value.is_string()) fail(fmt::format("'{}' is not a string", key));
    return value.get<std::string>();
  }
  const nlohmann::json& field(const char* key) const {
    auto found = object_.find(key);
    if (found == object_.end()) fail(fmt::format("'{}' is missing", key));
    return *found;
  }
  [[noreturn]] void fail(const std::string& what) const {
    throw ConfigError("{} is not a flight record: {}. Remove it to see what the other ranks recorded.", file_,
                      what);
  }

 private:
  const nlohmann::json& object_;
  const std::string& file_;
};

nlohmann::json parse_json(const std::string& text) {
  bool deep = false;
  auto shallow = [&](int depth, nlohmann::json::parse_event_t, nlohmann::json&) {
    deep |= depth > static_cast<int>(kMaxDepth);
    return !deep;
  };
  nlohmann::json parsed = nlohmann::json::parse(text, shallow, /*allow_exceptions=*/false);
  return deep ? nlohmann::json() : parsed;
}

cluster::FailureReport failure_of(const nlohmann::json& json, const std::string& name) {
  Fields fields(json, name);
  cluster::FailureReport report;
  report.rank = static_cast<int>(fields.number("rank", -1, kMaxRanks));
  report.host = fields.text("host");
  report.pid = fields.number("pid", 0, INT64_MAX);
  report.step = fields.number("step", -1, INT64_MAX);
  report.kind = fields.text("kind");
  report.what = fields.text("what");
  report.next = fields.text("next");
  return report;
}

using Place = std::pair<std::string, uint64_t>;  // group, number

// What each rank called as operation `number` of a group.
std::map<Place, std::map<int, std::string>> calls_by_place(const std::vector<RankRecord>& ranks) {
  std::map<Place, std::map<int, std::string>> calls;
  for (const RankRecord& record : ranks) {
    for (const RecordedOperation& operation : record.operations) {
      bool collective = operation.call.rfind("send", 0) != 0 && operation.call.rfind("receive", 0) != 0;
      if (collective) calls[{operation.group, operation.number}][record.rank] = operation.call;
    }
  }
  return calls;
}

// First and last operation number in a rank's record of a group (older ones were overwritten).
struct Span {
  uint64_t first = 0;
  uint64_t last = 0;
};

std::map<int, Span> spans_of(const std::map<Place, std::map<int, std::string>>& calls,
                             const std::string& group) {
  std::map<int, Span> spans;
  for (const auto& [place, of_ranks] : calls) {
    if (place.first != group) continue;
    for (const auto& [rank, call] : of_ranks) {
      Span& span = spans[rank];
      if (span.first == 0) span.first = place.second;
      span.last = place.second;
    }
  }
  return spans;
}

std::string most_common(const std::map<int, std::string>& calls) {
  std::map<std::string, int> votes;
  for (const auto& [rank, call] : calls) ++votes[call];
  // On a tie the lowest rank counts as expected.
  std::string best = calls.begin()->second;
  for (const auto& [call, count] : votes) {
    if (count > votes[best]) best = call;
  }
  return best;
}

std::optional<Divergence> divergence_at(const Place& place, const std::map<int, std::string>& of_ranks,
                                        const std::map<int, Span>& spans) {
  std::string expected = most_common(of_ranks);
  for (const auto& [rank, call] : of_ranks) {
    if (call != expected) return Divergence{rank, place.second, place.first, expected, call};
  }
  for (const auto& [rank, span] : spans) {
    if (span.last < place.second) return Divergence{rank, place.second, place.first, expected, "nothing"};
  }
  return std::nullopt;
}

}  // namespace

RankRecord parse_flight_record(const std::string& text, const std::string& name) {
  nlohmann::json json = parse_json(text);
  Fields fields(json, name);
  RankRecord record;
  record.world_size = static_cast<int>(fields.number("world_size", 1, kMaxRanks));
  record.rank = static_cast<int>(fields.number("rank", 0, record.world_size - 1));
  record.host = fields.text("host");
  record.pid = fields.number("pid", 0, INT64_MAX);
  if (!fields.field("operations").is_array()) fields.fail("'operations' is not a list");
  for (const nlohmann::json& one : fields.field("operations")) {
    Fields operation(one, name);
    record.operations.push_back({operation.text("group"),
                                 static_cast<uint64_t>(operation.number("number", 0, INT64_MAX)),
                                 operation.text("call"), operation.text("state")});
  }
  if (json.contains("failure")) record.failure = failure_of(json["failure"], name);
  return record;
}

std::vector<RankRecord> read_flight_records(const std::filesystem::path& folder) {
  if (!std::filesystem::is_directory(folder))
    throw ConfigError("{} is not a folder. Give the folder with the rank-N.json files of a failed job.",
                      folder.string());
  std::vector<RankRecord> records;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    std::string name = entry.path().filename().string();
    if (name.rfind("rank-", 0) == 0 && entry.path().extension() == ".json")
      records.push_back(parse_flight_record(read_file(entry.path(), kMaxRecordBytes), entry.path().string()));
  }
  if (records.empty())
    throw ConfigError(
        "{} contains no flight records (rank-N.json). They are written when an operation fails.",
        folder.string());
  std::sort(records.begin(), records.end(), [](const auto& a, const auto& b) { return a.rank < b.rank; });
  return records;
}

FlightAnalysis analyse_flight(std::vector<RankRecord> records) {
  FlightAnalysis analysis;
  analysis.ranks = std::move(records);
  std::set<int> seen;
  for (const RankRecord& record : analysis.ranks) {
    seen.insert(record.rank);
    if (record.failure && (!analysis.culprit || record.failure->rank >= 0)) analysis.culprit = record.failure;
  }
  const int world_size = analysis.ranks.empty() ? 0 : analysis.ranks.front().world_size;
  for (int rank = 0; rank < world_size; ++rank) {
    if (!seen.count(rank)) analysis.missing.push_back(rank);
  }
  auto calls = calls_by_place(analysis.ranks);
  std::map<std::string, std::map<int, Span>> spans;
  for (const auto& [place, of_ranks] : calls) {
    if (!spans.count(place.first)) spans[place.first] = spans_of(calls, place.first);
    auto found = divergence_at(place, of_ranks, spans[place.first]);
    if (found && (!analysis.first_divergence || found->sequence < analysis.first_divergence->sequence))
      analysis.first_divergence = found;
  }
  return analysis;
}

}  // namespace yoke::comm
