// The processor this runs on.
#pragma once

#include <string>
#include <string_view>

namespace yoke {

// "Intel(R) Xeon(R) Processor @ 2.50GHz", "Neoverse-V1"; "unknown processor" where nothing says it.
std::string cpu_name();

// The same from the text of /proc/cpuinfo. On Arm that has only numbers; names are looked up by them.
std::string cpu_name_of(std::string_view cpuinfo);
}  // namespace yoke
