// Any bytes as a profile (JSON or graph.txt): an error, or a profile whose JSON reads back as the same.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "yoke/base/error.h"
#include "yoke/plan/pipeline/profile.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace yoke::plan;
  try {
    Profile profile = parse_profile({reinterpret_cast<const char*>(data), size}, "fuzz.txt");
    Profile again = parse_profile(to_json(profile), "again.json");
    YOKE_CHECK(again.edges == profile.edges && again.layers.size() == profile.layers.size(),
               "the document does not read back");
  } catch (const yoke::ConfigError&) {
  }
  return 0;
}
