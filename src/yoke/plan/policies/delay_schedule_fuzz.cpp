// Any bytes as a schedule of delays: an error, or steps in order whose bound holds at every update.
#include <cstddef>
#include <cstdint>
#include <string>

#include "yoke/base/error.h"
#include "yoke/plan/policies/delay_schedule.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace yoke::plan;
  std::string text(reinterpret_cast<const char*>(data), size);
  try {
    std::vector<DelayStep> schedule = parse_delay_schedule("ps.max_delay", text);
    YOKE_CHECK(!schedule.empty() && schedule[0].from == 0, "'{}' does not begin at 0", text);
    for (size_t i = 0; i < schedule.size(); ++i) {
      YOKE_CHECK(schedule[i].max_delay >= 0, "'{}' has a delay of {}", text, schedule[i].max_delay);
      YOKE_CHECK(i == 0 || schedule[i].from > schedule[i - 1].from, "'{}' goes back", text);
      YOKE_CHECK(delay_at(schedule, schedule[i].from) == schedule[i].max_delay, "'{}' at {}", text,
                 schedule[i].from);
    }
  } catch (const yoke::ConfigError&) {
  }
  return 0;
}
