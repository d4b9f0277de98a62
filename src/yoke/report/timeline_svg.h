// Timelines of pipelines as a picture, for measured and simulated runs.
#pragma once

#include <string>
#include <vector>

#include "yoke/metrics/timeline.h"

namespace yoke::report {

// One row per worker, time to the right, timelines below each other on one scale. Self-contained or inside a
// page, for light and dark. If there are too many spans, the first are drawn, and the picture says so.
std::string timeline_svg(const std::string& title, const std::vector<metrics::Timeline>& timelines);

}  // namespace yoke::report
