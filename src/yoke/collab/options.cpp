#include "yoke/collab/options.h"

#include "yoke/base/units.h"

namespace yoke::collab {

std::string check_bandwidth(const std::string& text) {
  if (text == "auto" || parse_rate(text).value_or(0) > 0) return "";
  return "auto, or a rate above 0 such as 20mbit";
}

}  // namespace yoke::collab
