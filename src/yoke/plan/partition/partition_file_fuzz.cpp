// Any bytes as a partition: an error, or parts for all of its nodes.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "yoke/base/error.h"
#include "yoke/plan/partition/partition_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace yoke::plan;
  try {
    NamedPartition read = parse_partition({reinterpret_cast<const char*>(data), size}, "fuzz.json");
    YOKE_CHECK(parts_of_nodes(read, read.names, "fuzz.json") == read.part_of, "it does not fit itself");
    for (int part : read.part_of) YOKE_CHECK(part >= 0 && part < read.parts, "part {}", part);
  } catch (const yoke::ConfigError&) {
  }
  return 0;
}
