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

std::string to_text(const MeetingRecord& record) {
  const Json all = {
      {"run_id", record.run_id}, {"newest", to_json(record.newest)}, {"previous", to_json(record.previous)}};
  return all.dump() + "\n";
}

MeetingRecord parse_record(const std::string& text, const std::string& where) try {
  const Json all = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  return {text_field(all, "run_id"), parse_position(field(all, "newest")),
          parse_position(field(all, "previous"))};
} catch (const BadMessage& error) {
  throw ConfigError("{} is not the record of a meeting point: {}. Next: remove it to start a new run.", where,
                    error.what());
}

void write_record(const std::filesystem::path& file, const MeetingRecord& record) {
  write_file_atomically(file, to_text(record));
}

std::optional<MeetingRecord> read_record(const std::filesystem::path& file) {
  if (!std::filesystem::exists(file)) return std::nullopt;
  return parse_record(read_file(file, kMaxFile), file.string());
}

}  // namespace yoke::collab
