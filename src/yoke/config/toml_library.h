// toml++ as we use it. Include it nowhere else.
#pragma once

// Parse errors as values keep its exceptions out of our headers and of the fuzzers' way.
#define TOML_EXCEPTIONS 0
// It asserts what malformed files break ("[!"), and with NDEBUG even lets the compiler assume it: undefined
// behaviour (found by fuzzing). Neither is for what users type: it checks and reports the same things right
// after.
#undef NDEBUG
#define TOML_ASSERT(condition) static_assert(true)
#include <toml++/toml.h>
