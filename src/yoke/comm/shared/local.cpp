#include "yoke/comm/shared/local.h"

#include <sys/mman.h>

#include <cerrno>

#include "yoke/base/error.h"
#include "yoke/comm/shared/backend.h"

namespace yoke::comm {
namespace shared {
namespace {

// All ranks share one address space: every pointer is valid everywhere.
class LocalSpace final : public AddressSpace {
 public:
  const std::string& name() const override { return name_; }
  Location locate(const void* data, size_t) const override {
    return {0, 0, reinterpret_cast<uint64_t>(data)};
  }
  std::byte* resolve(const Location& location, size_t) const override {
    return reinterpret_cast<std::byte*>(location.offset);
  }
  Memory allocate(size_t bytes) override;
  Memory allocate_inside(size_t bytes) override { return allocate(bytes); }
  bool outlives_owner() const override { return false; }

 private:
  std::string name_ = "local";
};

Memory LocalSpace::allocate(size_t bytes) {
  sweep();
  // Pages are zeroed, and committed when touched.
  size_t length = bytes > 0 ? bytes : 1;
  void* pages =
      ::mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (pages == MAP_FAILED)
    throw CommError("no memory for {} bytes shared between the threads of this process: {}", bytes,
                    describe_errno(errno));
  ::madvise(pages, length, MADV_HUGEPAGE);
  return {std::shared_ptr<void>(pages, [length](void* data) { ::munmap(data, length); }), bytes};
}

}  // namespace
}  // namespace shared

std::vector<std::unique_ptr<Backend>> make_local_backends(int size,
                                                          std::shared_ptr<cluster::Failure> failure) {
  using namespace shared;
  check_group_size(size);
  auto space = std::make_shared<LocalSpace>();
  Memory memory = space->allocate_inside(Control::bytes(size));
  Control control(static_cast<std::byte*>(memory.data.get()), size);
  cpu_set_t cpus;
  if (::sched_getaffinity(0, sizeof(cpus), &cpus) != 0) CPU_ZERO(&cpus);
  for (int r = 0; r < size; ++r) control.rank(r).cpus = cpus;
  control.head().joined.store(static_cast<uint32_t>(size));
  control.head().users.store(static_cast<uint32_t>(size));

  std::vector<std::unique_ptr<Backend>> backends;
  for (int r = 0; r < size; ++r) {
    GroupPlace place{
        r, size, space, failure, static_cast<std::byte*>(memory.data.get()), {}, is_crowded(control)};
    if (r == 0) place.owned = memory;
    backends.push_back(std::make_unique<SharedBackend>(std::move(place)));
  }
  return backends;
}

}  // namespace yoke::comm
