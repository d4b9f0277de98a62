// Any text is a ticket that is written the same way, or is refused with a reason.
#include <cstdint>
#include <cstdlib>

#include "yoke/base/error.h"
#include "yoke/base/text.h"
#include "yoke/collab/ticket.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  try {
    if (yoke::collab::to_text(yoke::collab::parse_ticket(text)) != yoke::trim(text)) std::abort();
  } catch (const yoke::ConfigError& error) {
    if (std::string(error.what()).empty()) std::abort();
  }
  return 0;
}
