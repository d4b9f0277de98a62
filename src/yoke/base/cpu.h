// The processor this runs on.
#pragma once

#include <string>

namespace yoke {

// "Intel(R) Xeon(R) Processor @ 2.50GHz", "Neoverse-N1" where the kernel says so; "unknown processor"
// elsewhere.
std::string cpu_name();

// Whether it has instructions that multiply bf16 (AVX512-BF16, AMX, Arm's BF16): without them bf16 is
// emulated.
bool cpu_multiplies_bf16();

}  // namespace yoke
