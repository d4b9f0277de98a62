// Timelines of pipelines as a picture: one drawing for what was measured and what was simulated.
#pragma once

#include <string>
#include <vector>

#include "yoke/metrics/timeline.h"

namespace yoke::report {

// A row for each worker, time to the right, one timeline below the other on one scale. Stands alone or in a
// page, for light and dark. Of very many spans the first are drawn, and the picture says so.
std::string timeline_svg(const std::string& title, const std::vector<metrics::Timeline>& timelines);

}  // namespace yoke::report
