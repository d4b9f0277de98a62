// The processor this runs on.
#pragma once

#include <string>

namespace yoke {

// "Intel(R) Xeon(R) Processor @ 2.50GHz", "Neoverse-N1" where the kernel says so; "unknown processor"
// elsewhere.
std::string cpu_name();

}  // namespace yoke
