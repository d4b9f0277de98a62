// Any bytes as a list of steps: an error, or a list whose text reads back as the same list.
#include <cstddef>
#include <cstdint>
#include <string>

#include "yoke/base/error.h"
#include "yoke/plan/collectives/steps.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace yoke::plan;
  try {
    std::vector<Step> steps = parse_steps({reinterpret_cast<const char*>(data), size});
    YOKE_CHECK(parse_steps(to_string(steps)) == steps, "the text of a list does not read back");
    validate_steps({steps, steps});
  } catch (const yoke::ConfigError&) {
  }
  return 0;
}
