#include "yoke/base/cpu.h"

#include <gtest/gtest.h>

namespace yoke {
namespace {

TEST(Cpu, IsCalledByItsName) {
  EXPECT_EQ(cpu_name_of("processor\t: 0\nvendor_id\t: GenuineIntel\nmodel name\t: Intel(R) Xeon(R) CPU\n"),
            "Intel(R) Xeon(R) CPU");
  EXPECT_EQ(cpu_name_of("processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd40\n"), "Neoverse-V1");
  EXPECT_EQ(cpu_name_of("CPU implementer\t: 0xc0\nCPU part\t: 0xac3\n"), "Ampere-1");
  EXPECT_EQ(cpu_name_of("CPU implementer\t: 0x41\nCPU part\t: 0xfff\n"),
            "Arm processor (implementer 0x41, part 0xfff)");
  EXPECT_EQ(cpu_name_of(""), "unknown processor");
}

TEST(Cpu, OfThisMachineIsNoNumber) {
  EXPECT_NE(cpu_name().rfind("0x", 0), 0u) << cpu_name();
}

}  // namespace
}  // namespace yoke
