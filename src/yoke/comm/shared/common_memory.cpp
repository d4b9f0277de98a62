#include "yoke/comm/shared/common_memory.h"

#include <new>

namespace yoke::comm::shared {
namespace {

using Users = std::atomic<uint32_t>;

// Behind the data, on a line of its own.
size_t users_at(size_t bytes) {
  return (bytes + 63) / 64 * 64;
}

}  // namespace

Memory make_common(const std::shared_ptr<AddressSpace>& space, size_t bytes, int users, Location& place) {
  size_t all = users_at(bytes) + sizeof(Users);
  Memory whole = space->allocate_inside(all);
  auto* base = static_cast<std::byte*>(whole.data.get());
  auto* count = new (base + users_at(bytes)) Users(static_cast<uint32_t>(users));
  place = space->locate(base, all);
  auto release = [space, whole, count](void*) {
    count->fetch_sub(1, std::memory_order_acq_rel);
    space->retire(whole, *count);
  };
  return {std::shared_ptr<void>(base, std::move(release)), bytes};
}

Memory open_common(const std::shared_ptr<AddressSpace>& space, const Location& place, size_t bytes) {
  std::byte* base = space->resolve(place, users_at(bytes) + sizeof(Users));
  auto* count = reinterpret_cast<Users*>(base + users_at(bytes));
  auto release = [space, count](void*) { count->fetch_sub(1, std::memory_order_acq_rel); };
  return {std::shared_ptr<void>(base, std::move(release)), bytes};
}

}  // namespace yoke::comm::shared
