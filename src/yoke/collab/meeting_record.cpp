#include "yoke/collab/meeting_record.h"

#include <nlohmann/json.hpp>

#include "yoke/base/error.h"
#include "yoke/base/file.h"
#include "yoke/collab/meeting_fields.h"

namespace yoke::collab {
namespace {

using Json = nlohmann::json;

constexpr int64_t kMaxFile = 64 << 10;

Json to_json(const Position& position) {
  return {{"epoch", position.epoch}, {"next_sample", position.next_sample}};
}

Position parse_position(const Json& row) {
  return {integer_field(row, "epoch", 0, int64_t{1} << 40),
          integer_field(row, "next_sample", 0, int64_t{1} << 62)};
}

}  // namespace

void write_record(const std::filesystem::path& file, const MeetingRecord& record) {
  const Json all = {
      {"run_id", record.run_id}, {"newest", to_json(record.newest)}, {"previous", to_json(record.previous)}};
  write_file_atomically(file, all.dump() + "\n");
}

std::optional<MeetingRecord> read_record(const std::filesystem::path& file) try {
  if (!std::filesystem::exists(file)) return std::nullopt;
  const Json all = Json::parse(read_file(file, kMaxFile), nullptr, /*allow_exceptions=*/false);
  return MeetingRecord{text_field(all, "run_id"), parse_position(field(all, "newest")),
                       parse_position(field(all, "previous"))};
} catch (const BadMessage& error) {
  throw ConfigError("{} is not the record of a meeting point: {}. Next: remove it to start a new run.",
                    file.string(), error.what());
}

}  // namespace yoke::collab
