// What a meeting point must know to take up its run after it died: a small file, replaced in every step.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace yoke::collab {

// Where in the order of samples the batch of a step begins.
struct Position {
  int64_t epoch = 0;
  int64_t next_sample = 0;
  bool operator==(const Position&) const = default;
};

// The newest step that peers may have taken, and the one before: they may not have heard of it.
struct MeetingRecord {
  std::string run_id;
  Position newest, previous;
};

std::string to_text(const MeetingRecord& record);
// Throws ConfigError, which names `where`.
MeetingRecord parse_record(const std::string& text, const std::string& where);

// Atomic: readers see the old record or the new one.
void write_record(const std::filesystem::path& file, const MeetingRecord& record);
// nullopt: there is no such file. Throws ConfigError for a file that is not a record.
std::optional<MeetingRecord> read_record(const std::filesystem::path& file);

}  // namespace yoke::collab
