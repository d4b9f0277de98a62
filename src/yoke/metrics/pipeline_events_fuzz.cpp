// Any bytes as pipeline.json: an error, or events that read back as the same and can be drawn.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "yoke/base/error.h"
#include "yoke/metrics/pipeline_events.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace yoke::metrics;
  try {
    PipelineEvents events =
        parse_pipeline_events({reinterpret_cast<const char*>(data), size}, "pipeline.json");
    PipelineEvents again = parse_pipeline_events(to_json(events), "again.json");
    YOKE_CHECK(again.events.size() == events.events.size(), "the document does not read back");
    Timeline timeline = timeline_of(events);
    YOKE_CHECK(timeline.spans.size() == events.events.size(), "events are missing from the timeline");
    int last = last_minibatch(events);
    if (last >= 0) YOKE_CHECK(!minibatch_of(events, last).events.empty(), "a minibatch without events");
  } catch (const yoke::ConfigError&) {
  }
  return 0;
}
