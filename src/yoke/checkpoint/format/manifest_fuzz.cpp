// Any bytes as a manifest: an error, or a valid manifest that survives being written and read.
#include <cstdlib>

#include "yoke/base/error.h"
#include "yoke/checkpoint/format/manifest.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace yoke::checkpoint::format;
  try {
    Manifest manifest = parse_manifest({reinterpret_cast<const char*>(data), size}, "fuzz");
    if (!validate(manifest).empty()) std::abort();
    Manifest again = parse_manifest(to_json_text(manifest), "again");
    if (again.files != manifest.files || again.step != manifest.step) std::abort();
  } catch (const yoke::ConfigError&) {
  }
  return 0;
}
