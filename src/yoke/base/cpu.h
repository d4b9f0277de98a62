// The CPU of this machine.
#pragma once

#include <string>
#include <string_view>

namespace yoke {

// "Intel(R) Xeon(R) Processor @ 2.50GHz", "Neoverse-V1"; "unknown processor" if not available.
std::string cpu_name();

// The same from the text of /proc/cpuinfo, which on Arm has only part numbers.
std::string cpu_name_of(std::string_view cpuinfo);
}  // namespace yoke
