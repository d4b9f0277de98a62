#include "yoke/compute/memory_room.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>

namespace yoke::compute {
namespace {

// The number after `key` in a file with one such pair per line; 0 if missing.
int64_t number_behind(const std::filesystem::path& file, std::string_view key) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with(key)) return std::strtoll(line.c_str() + key.size(), nullptr, 10);
  }
  return 0;
}

// A file with one number; empty for "max" and if it cannot be read.
std::optional<int64_t> number_in(const std::filesystem::path& file) {
  int64_t value = 0;
  std::ifstream in(file);
  return in >> value ? std::optional(value) : std::nullopt;
}

void tighten(MemoryRoom& room, int64_t limit, int64_t used) {
  room.total = std::min(room.total, limit);
  room.free = std::min(room.free, std::max<int64_t>(0, limit - used));
}

// A container sees its own control group at the root. Its page cache can be reclaimed.
void tighten_by_control_group(MemoryRoom& room) {
  const std::filesystem::path group = "/sys/fs/cgroup";
  auto limit = number_in(group / "memory.max"), used = number_in(group / "memory.current");
  if (limit && used) tighten(room, *limit, *used - number_behind(group / "memory.stat", "inactive_file "));
}

void tighten_by_address_space(MemoryRoom& room) {
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return;
  tighten(room, static_cast<int64_t>(limit.rlim_cur), status_bytes("VmSize:"));
}

}  // namespace

int64_t status_bytes(std::string_view key) {
  return number_behind("/proc/self/status", key) * 1024;
}

int64_t resident_bytes() {
  std::ifstream in("/proc/self/statm");
  int64_t size = 0, resident = 0;
  in >> size >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

MemoryRoom host_memory_room() {
  MemoryRoom room{number_behind("/proc/meminfo", "MemAvailable:") * 1024,
                  number_behind("/proc/meminfo", "MemTotal:") * 1024};
  tighten_by_control_group(room);
  tighten_by_address_space(room);
  return room;
}

}  // namespace yoke::compute
