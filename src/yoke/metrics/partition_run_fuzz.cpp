// Any bytes as partition.json: an error, or a run that reads back as the same and has a timeline.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "yoke/base/error.h"
#include "yoke/metrics/partition_run.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace yoke::metrics;
  try {
    PartitionRun run = parse_partition_run({reinterpret_cast<const char*>(data), size}, "partition.json");
    PartitionRun again = parse_partition_run(to_json(run), "again.json");
    YOKE_CHECK(again.nodes.size() == run.nodes.size() && again.edges == run.edges,
               "the document does not read back");
    YOKE_CHECK(timeline_of(run).spans.size() == run.events.size(), "events are missing from the timeline");
  } catch (const yoke::ConfigError&) {
  }
  return 0;
}
