#include <fcntl.h>
#include <fmt/core.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <ctime>
#include <filesystem>
#include <fstream>
#include <thread>

#include "cli/doctor_checks.h"
#include "yoke/base/clock.h"
#include "yoke/base/cpu.h"
#include "yoke/base/error.h"
#include "yoke/base/memory.h"
#include "yoke/base/text.h"
#include "yoke/base/units.h"

namespace yoke::cli {
namespace {

namespace fs = std::filesystem;

constexpr double kLittleDiskBytes = 2e9;
constexpr double kLittleSharedMemoryBytes = 64e6;
constexpr size_t kProbeBytes = 32 << 20;
constexpr double kSlowDisk = 20e6;  // bytes per second: a checkpoint of 124M parameters takes a minute
constexpr rlim_t kFewFiles = 1024;  // a rank needs a few descriptors per peer
constexpr double kSlowClockSeconds = 1e-6;  // per call

std::string line_of(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

Check check_cpu() {
  cpu_set_t mine;
  CPU_ZERO(&mine);
  int usable = ::sched_getaffinity(0, sizeof mine, &mine) == 0 ? CPU_COUNT(&mine) : 1;
  unsigned all = std::thread::hardware_concurrency();
  return {"cpu", true, fmt::format("{}, {} of {} cores usable", cpu_name(), usable, std::max(all, 1u))};
}

// "MemAvailable:   12345 kB" of /proc/meminfo.
double meminfo(const std::string& key) {
  std::ifstream file("/proc/meminfo");
  for (std::string line; std::getline(file, line);)
    if (line.rfind(key + ":", 0) == 0) return std::strtod(line.c_str() + key.size() + 1, nullptr) * 1024;
  return 0;
}

Check check_memory_of_machine() {
  auto total = static_cast<double>(usable_memory_bytes());
  double free = std::min(total, meminfo("MemAvailable"));
  bool little = free < 0.1 * total;
  return {"memory", !little, fmt::format("{}, {} free", format_bytes(total), format_bytes(free)),
          little ? "less than a tenth is free: stop other processes" : ""};
}

// The selected word of "always [madvise] never".
std::string chosen(const std::string& line) {
  size_t begin = line.find('['), end = line.find(']');
  return begin == std::string::npos || end == std::string::npos ? ""
                                                                : line.substr(begin + 1, end - begin - 1);
}

Check check_huge_pages() {
  const fs::path folder = "/sys/kernel/mm/transparent_hugepage";
  std::string pages = chosen(line_of(folder / "enabled"));
  if (pages.empty()) return {"huge pages", true, "not supported by this kernel", "", true};
  std::string shared = chosen(line_of(folder / "shmem_enabled"));
  bool off = pages == "never";
  bool shared_off = shared == "never" || shared == "deny";
  std::string hint;
  if (off)
    hint = fmt::format("large copies are faster with them: echo madvise > {}/enabled (as root)",
                       folder.string());
  else if (shared_off)
    hint = fmt::format("shm is faster with them: echo advise > {}/shmem_enabled (as root)", folder.string());
  return {"huge pages", true, fmt::format("{}, shared memory {}", pages, shared), hint, off};
}

Check check_space(const std::string& name, const fs::path& path, double least) {
  struct statvfs info {};
  if (::statvfs(path.c_str(), &info) != 0)
    return {name, false, path.string(), fmt::format("cannot be read: {}", describe_errno(errno))};
  double free = static_cast<double>(info.f_bavail) * static_cast<double>(info.f_frsize);
  bool little = free < least;
  return {name, !little, fmt::format("{} free in {}", format_bytes(free), path.string()),
          little ? fmt::format("less than {}: free some space, or mount it larger (docker run --shm-size)",
                               format_bytes(least))
                 : ""};
}

std::string limit_text(rlim_t value) {
  return value == RLIM_INFINITY ? "unlimited" : fmt::format("{}", value);
}

Check check_open_files() {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  bool few = limit.rlim_cur < kFewFiles;
  return {"open files", !few,
          fmt::format("{} (at most {})", limit_text(limit.rlim_cur), limit_text(limit.rlim_max)),
          few ? "too few for many ranks: ulimit -n 65536" : ""};
}

Check check_locked_memory() {
  rlimit limit{};
  ::getrlimit(RLIMIT_MEMLOCK, &limit);
  bool unlimited = limit.rlim_cur == RLIM_INFINITY;
  return {"locked memory", true, unlimited ? "unlimited" : format_bytes(static_cast<double>(limit.rlim_cur)),
          unlimited || limit.rlim_cur >= (rlim_t{1} << 30)
              ? ""
              : "InfiniBand under MPI or NCCL wants more: ulimit -l unlimited"};
}

Check check_clock() {
  constexpr int kLooks = 10000;
  Stopwatch watch;
  double sum = 0;
  for (int i = 0; i < kLooks; ++i) sum += now_seconds();
  double each = watch.seconds() / kLooks;
  std::string source = line_of("/sys/devices/system/clocksource/clocksource0/current_clocksource");
  bool slow = each > kSlowClockSeconds || sum < 0;
  return {"clock", !slow,
          fmt::format("{}, {:.0f} ns a look", source.empty() ? "unknown source" : source, 1e9 * each),
          slow ? "timings cost more than they measure: boot with clocksource=tsc" : ""};
}

// Disk write speed in bytes per second, measured with a temporary file. Throws ConfigError.
double write_speed(const fs::path& folder) {
  std::string name = (folder / ".yoke-doctor-XXXXXX").string();
  int file = ::mkstemp(name.data());
  if (file < 0) throw ConfigError("cannot be written: {}", describe_errno(errno));
  ::unlink(name.c_str());
  std::vector<char> block(1 << 20, 'y');
  Stopwatch watch;
  size_t written = 0;
  while (written < kProbeBytes) {
    ssize_t done = ::write(file, block.data(), block.size());
    if (done <= 0) break;
    written += static_cast<size_t>(done);
  }
  bool complete = written >= kProbeBytes && ::fsync(file) == 0;
  int error = errno;
  double seconds = watch.seconds();
  ::close(file);
  if (!complete) throw ConfigError("cannot be written: {}", describe_errno(error));
  return static_cast<double>(written) / seconds;
}

Check check_disk_speed() {
  try {
    double speed = write_speed(".");
    bool slow = speed < kSlowDisk;
    return {"disk speed", !slow, fmt::format("{}/s written and synced here", format_bytes(speed)),
            slow ? "checkpoints will take long: put out.dir on a local disk" : ""};
  } catch (const ConfigError& error) {
    return {"disk speed", false, "this folder " + std::string(error.what()),
            "start yoke in a writable folder, or set out.dir"};
  }
}

}  // namespace

std::vector<Check> machine_checks() {
  return {check_cpu(),        check_memory_of_machine(),
          check_huge_pages(), check_space("shared memory", "/dev/shm", kLittleSharedMemoryBytes),
          check_open_files(), check_locked_memory(),
          check_clock(),      check_space("disk", ".", kLittleDiskBytes),
          check_disk_speed()};
}

std::string to_text(const std::vector<Check>& checks) {
  constexpr size_t kMargin = 22, kWidth = 80;
  std::string text;
  for (const Check& check : checks) {
    const char* mark = !check.ok ? "BAD" : check.absent ? "-" : "ok";
    std::string start = fmt::format("{:<4} {:<16} ", mark, check.name);
    for (const std::string& part : {check.value, check.hint}) {
      if (part.empty()) continue;
      for (const std::string& line : wrap(part, kWidth - kMargin)) {
        text += start + line + "\n";
        start.assign(kMargin, ' ');
      }
    }
  }
  return text;
}

}  // namespace yoke::cli
