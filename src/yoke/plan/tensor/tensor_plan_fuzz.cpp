// Any bytes as a plan of layer patterns: an error that a user can act on, or a plan.
#include "yoke/base/error.h"
#include "yoke/plan/tensor/tensor_plan.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    yoke::plan::parse_tensor_plan({reinterpret_cast<const char*>(data), size});
  } catch (const yoke::ConfigError&) {
  }
  return 0;
}
