#include "yoke/compute/memory_room.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

namespace yoke::compute {
namespace {

TEST(MemoryRoom, OfThisMachineIsPlausible) {
  MemoryRoom room = host_memory_room();
  EXPECT_GT(room.free, 1 << 20);
  EXPECT_LE(room.free, room.total);
  EXPECT_GT(resident_bytes(), 1 << 20);
  EXPECT_GE(status_bytes("VmHWM:"), resident_bytes() / 2);
  EXPECT_EQ(status_bytes("VmNothing:"), 0);
}

TEST(MemoryRoom, FollowsTheLimitOfTheAddressSpace) {
  rlimit before{};
  getrlimit(RLIMIT_AS, &before);
  rlimit tight = before;
  tight.rlim_cur = static_cast<rlim_t>(status_bytes("VmSize:")) + (256 << 20);
  ASSERT_EQ(setrlimit(RLIMIT_AS, &tight), 0);
  MemoryRoom room = host_memory_room();
  setrlimit(RLIMIT_AS, &before);
  EXPECT_LE(room.free, 256 << 20);
  EXPECT_LE(room.total, static_cast<int64_t>(tight.rlim_cur));
}

}  // namespace
}  // namespace yoke::compute
