// How fast checkpoints reach the disk, beside the disk's own speed, in turn:
//   ninja -C build bench_checkpoint_speed && build/bench_checkpoint_speed FOLDER [MEGABYTES]
// The disk's own speed: the same bytes from memory in aligned writes of 4 MB that bypass the page cache, then
// fdatasync.
#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <vector>

#include "yoke/base/clock.h"
#include "yoke/base/error.h"
#include "yoke/base/file.h"
#include "yoke/checkpoint/checkpoint.h"

namespace {

using namespace yoke;
constexpr size_t kBlock = 4 << 20;

double disk_seconds(const std::filesystem::path& file, const std::byte* data, size_t bytes) {
  std::filesystem::remove(file);
  Stopwatch watch;
  FileDescriptor out(::open(file.c_str(), O_WRONLY | O_CREAT | O_DIRECT, 0600));
  if (!out) throw ConfigError("{}: {}", file.string(), describe_errno(errno));
  for (size_t at = 0; at < bytes; at += kBlock) {
    if (::write(out.get(), data + at, kBlock) != static_cast<ssize_t>(kBlock))
      throw ConfigError("{}: {}", file.string(), describe_errno(errno));
  }
  ::fdatasync(out.get());
  return watch.seconds();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

}  // namespace

int main(int argc, char** argv) {
  std::filesystem::path folder = argc > 1 ? argv[1] : "checkpoint_speed";
  size_t bytes = (argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 400) * 1000000 / kBlock * kBlock;
  std::filesystem::create_directories(folder);
  checkpoint::State state;
  for (size_t i = 0; i < bytes / kBlock; ++i)
    state.model.emplace_back(fmt::format("layer{}.weight", i),
                             torch::randn({static_cast<int64_t>(kBlock / 4)}));
  auto* plain = static_cast<std::byte*>(std::aligned_alloc(4096, bytes));
  for (size_t i = 0; i < bytes / kBlock; ++i)
    std::copy_n(static_cast<const std::byte*>(state.model[i].second.data_ptr()), kBlock, plain + i * kBlock);
  checkpoint::Writer writer(folder / "checkpoints", {.every_steps = 1});
  writer.reserve(state);
  std::vector<double> disk, total, stall;
  for (int round = 1; round <= 5; ++round) {
    disk.push_back(disk_seconds(folder / "plain", plain, bytes));
    Stopwatch watch;
    writer.save(round, state);
    stall.push_back(watch.seconds());
    writer.wait();
    total.push_back(watch.seconds());
    writer.reserve(state);  // waits until the old ones are removed, which is not part of being safe
    fmt::print("round {}: disk {:.0f} MB/s, checkpoint {:.0f} MB/s, training stalled {:.3f} s\n", round,
               static_cast<double>(bytes) / disk.back() / 1e6,
               static_cast<double>(bytes) / total.back() / 1e6, stall.back());
  }
  fmt::print("{} MB, medians: disk {:.0f} MB/s, checkpoint {:.0f} MB/s ({:.2f} of it), stalled {:.3f} s\n",
             bytes / 1000000, static_cast<double>(bytes) / median(disk) / 1e6,
             static_cast<double>(bytes) / median(total) / 1e6, median(disk) / median(total), median(stall));
  std::free(plain);
  std::filesystem::remove_all(folder);
}
