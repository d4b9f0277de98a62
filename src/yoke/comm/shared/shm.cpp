#include "yoke/comm/shared/shm.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "yoke/base/error.h"
#include "yoke/comm/shared/backend.h"
#include "yoke/comm/shared/hand_out.h"
#include "yoke/comm/shared/shm_space.h"

namespace yoke::comm {
namespace {

using namespace shared;

constexpr size_t kUnit = 2 << 20;
constexpr size_t kLargestHeap = size_t{128} << 30, kLeastHeap = size_t{1} << 30;

// Whether the process has room for as many addresses: a limit (ulimit -v) or a sanitizer may leave few.
bool has_addresses_for(size_t bytes) {
  void* base = ::mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) return false;
  ::munmap(base, bytes);
  return true;
}

size_t heap_size(const ShmSetup& setup) {
  size_t memory =
      static_cast<size_t>(::sysconf(_SC_PHYS_PAGES)) * static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  size_t wanted = setup.heap_bytes > 0 ? setup.heap_bytes : std::min(memory, kLargestHeap);
  // Twice, because the process needs addresses for other things, too.
  const size_t ranks = static_cast<size_t>(setup.size);
  while (setup.heap_bytes == 0 && wanted > kLeastHeap && !has_addresses_for(2 * ranks * wanted)) wanted /= 2;
  // The control block of the whole group is in the first heap.
  return (wanted + Control::bytes(setup.size) + kUnit - 1) / kUnit * kUnit;
}

std::vector<File> make_heaps(int count, size_t bytes) {
  std::vector<File> heaps;
  for (int r = 0; r < count; ++r) {
    heaps.emplace_back(::memfd_create("yoke-heap", MFD_CLOEXEC));
    if (heaps.back().get() < 0 || ::ftruncate(heaps.back().get(), static_cast<off_t>(bytes)) != 0)
      throw CommError("could not create a heap of {} bytes in shared memory: {}", bytes,
                      describe_errno(errno));
  }
  return heaps;
}

std::shared_ptr<ShmSpace> map_heaps(const std::vector<File>& heaps, size_t bytes, int rank) {
  std::vector<int> files;
  for (const File& heap : heaps) files.push_back(heap.get());
  return std::make_shared<ShmSpace>(files, bytes, rank);
}

// The leader's first allocation is at offset 0 of heap 0, where the others expect it.
constexpr Location kControl{0, 0, 0};

GroupPlace found(const ShmSetup& setup, const Deadline& deadline) {
  size_t bytes = heap_size(setup);
  std::vector<File> heaps = make_heaps(setup.size, bytes);
  GroupPlace place{0, setup.size, map_heaps(heaps, bytes, 0), setup.failure, nullptr, {}, false};
  place.owned = place.space->allocate_inside(Control::bytes(setup.size));
  place.control = static_cast<std::byte*>(place.owned.data.get());
  YOKE_CHECK(place.control == place.space->resolve(kControl, 0), "the first allocation is not at the start");
  if (setup.size == 1) return place;
  FileServer server;
  setup.put(setup.key, fmt::format("{} {}", bytes, server.ticket()), deadline);
  server.serve(heaps, setup.size, *setup.failure, deadline);
  return place;
}

GroupPlace enter(const ShmSetup& setup, const Deadline& deadline) {
  std::string value = setup.get(setup.key, deadline);
  size_t blank = value.find(' ');
  size_t bytes = std::strtoull(value.c_str(), nullptr, 10);
  if (blank == std::string::npos || bytes == 0 || bytes % kUnit != 0)
    throw CommError("setting up shared memory: the value under '{}' is not a value written by rank 0",
                    setup.key);
  auto heaps = receive_files(value.substr(blank + 1), setup.rank, static_cast<size_t>(setup.size),
                             *setup.failure, deadline);
  GroupPlace place{setup.rank, setup.size, map_heaps(heaps, bytes, setup.rank), setup.failure, nullptr,
                   {},         false};
  place.control = place.space->resolve(kControl, Control::bytes(setup.size));
  return place;
}

}  // namespace

std::unique_ptr<Backend> make_shm_backend(const ShmSetup& setup) {
  check_group_size(setup.size);
  YOKE_CHECK(setup.rank >= 0 && setup.rank < setup.size && setup.failure, "rank {} of {}", setup.rank,
             setup.size);
  Deadline deadline = Deadline::after(setup.timeout);
  GroupPlace place = setup.rank == 0 ? found(setup, deadline) : enter(setup, deadline);
  Control control(place.control, place.size);
  join(control, place.rank, *place.failure, deadline);
  place.crowded = is_crowded(control);
  return std::make_unique<SharedBackend>(std::move(place));
}

}  // namespace yoke::comm
