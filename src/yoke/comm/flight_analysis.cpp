#include "yoke/comm/flight_analysis.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include <nlohmann/json.hpp>

#include "yoke/base/error.h"
#include "yoke/base/file.h"
#include "yoke/base/json_text.h"

namespace yoke::comm {
namespace {

constexpr int64_t kMaxRecordBytes = 16 << 20;
constexpr int64_t kMostRanks = 1 << 20;
constexpr int64_t kMostCount = int64_t{1} << 53;  // what a double holds exactly

// A whole number of `json` from `least` to `most`.
int64_t whole(const nlohmann::json& json, const char* key, int64_t least, int64_t most) {
  const nlohmann::json& value = json.at(key);
  double rounded = value.is_number_integer() ? value.get<double>() : std::nan("");
  if (rounded >= static_cast<double>(least) && rounded <= static_cast<double>(most))
    return value.get<int64_t>();
  throw ConfigError("\"{}\" is {}, not a whole number from {} to {}.", key, value.dump().substr(0, 40), least,
                    most);
}

cluster::FailureReport parse_failure(const nlohmann::json& json) {
  return {static_cast<int>(whole(json, "rank", -1, kMostRanks)),
          json.at("host"),
          whole(json, "pid", -1, kMostCount),
          whole(json, "step", -1, kMostCount),
          json.at("kind"),
          json.at("what"),
          json.at("next")};
}

RankRecord parse_record(const std::filesystem::path& path) {
  std::string text = read_file(path, kMaxRecordBytes);
  try {
    nlohmann::json json = parse_json(text, path.filename().string());
    RankRecord record;
    record.world_size = static_cast<int>(whole(json, "world_size", 1, kMostRanks));
    record.rank = static_cast<int>(whole(json, "rank", 0, record.world_size - 1));
    record.host = json.at("host");
    record.pid = whole(json, "pid", 0, kMostCount);
    for (const nlohmann::json& one : json.at("operations"))
      record.operations.push_back({one.at("group"),
                                   static_cast<uint64_t>(whole(one, "number", 0, kMostCount)), one.at("call"),
                                   one.at("state")});
    if (auto failure = json.find("failure"); failure != json.end()) record.failure = parse_failure(*failure);
    return record;
  } catch (const ConfigError& error) {
    throw ConfigError("{} is not a flight record: {}", path.string(), error.what());
  } catch (const nlohmann::json::exception& error) {
    throw ConfigError("{} is not a flight record: {}.", path.string(), json_problem(error));
  }
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

// The last number each rank has of a group, and the first it still remembers.
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
  // On a tie the lowest rank's word counts.
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

std::vector<RankRecord> read_flight_records(const std::filesystem::path& folder) {
  if (!std::filesystem::is_directory(folder))
    throw ConfigError("{} is not a folder. Give the folder with the rank-N.json files of a failed job.",
                      folder.string());
  std::vector<RankRecord> records;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    std::string name = entry.path().filename().string();
    if (name.rfind("rank-", 0) == 0 && entry.path().extension() == ".json")
      records.push_back(parse_record(entry));
  }
  if (records.empty())
    throw ConfigError("{} holds no flight records (rank-N.json). They are written when an operation fails.",
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
  for (int rank = 0; rank < analysis.ranks.front().world_size; ++rank) {
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
