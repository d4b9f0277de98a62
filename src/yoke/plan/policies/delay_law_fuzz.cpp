// Any bytes as a delay law: an error, or a law whose text reads back as the same law and whose times are
// times.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>

#include "yoke/base/error.h"
#include "yoke/plan/policies/delay_law.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace yoke::plan;
  std::string text(reinterpret_cast<const char*>(data), size);
  if (text.find("trace") != std::string::npos) return 0;  // files are not ours to open here
  try {
    DelayLaw law = parse_delay_law(text);
    YOKE_CHECK(to_string(parse_delay_law(to_string(law))) == to_string(law), "'{}' does not read back", text);
    DelayStream stream(law, 1, 0);
    double delay = stream.next(1e-3);
    YOKE_CHECK(delay >= 0 && !std::isnan(delay), "'{}' gives {}", text, delay);
  } catch (const yoke::ConfigError&) {
  }
  return 0;
}
