// Any bytes as Slurm's node list and task counts: an error or a bounded list, never a crash.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "yoke/base/error.h"
#include "yoke/cluster/identity.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string text(reinterpret_cast<const char*>(data), size);
  try {
    for (const std::string& name : yoke::cluster::expand_nodelist(text)) {
      if (name.empty() || name.size() > 255) std::abort();
    }
  } catch (const yoke::ConfigError&) {
  }
  try {
    for (int tasks : yoke::cluster::expand_tasks_per_node(text)) {
      if (tasks < 1) std::abort();
    }
  } catch (const yoke::ConfigError&) {
  }
  return 0;
}
