// Any text is either an address whose text reads back as the same, or a ConfigError.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "yoke/base/error.h"
#include "yoke/net/address.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    yoke::net::Address address =
        yoke::net::parse_address(std::string(reinterpret_cast<const char*>(data), size), 7);
    if (!(yoke::net::parse_address(address.text()) == address)) std::abort();
  } catch (const yoke::ConfigError&) {
  }
  return 0;
}
