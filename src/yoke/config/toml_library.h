// toml++ with our settings. The only place that includes it.
#pragma once

// Parse errors as values: keeps its exceptions out of our headers and the fuzzers.
#define TOML_EXCEPTIONS 0
// toml++ asserts conditions that malformed files violate ("[!"), and with NDEBUG lets the compiler assume
// them: undefined behaviour (found by fuzzing). Neither is acceptable for user input, and it checks and
// reports the same things right after.
#undef NDEBUG
#define TOML_ASSERT(condition) static_assert(true)
#include <toml++/toml.h>
