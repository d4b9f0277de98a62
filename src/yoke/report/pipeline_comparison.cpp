#include "yoke/report/pipeline_comparison.h"

#include <fmt/core.h>

#include "yoke/report/html.h"
#include "yoke/report/ticks.h"
#include "yoke/report/timeline_svg.h"

namespace yoke::report {

std::string pipeline_section(const PipelineComparison& comparison) {
  return fmt::format(
      "<h2>Pipeline</h2>\n<figure class=\"card\">"
      "<p>Measured {}, simulated {} from the mean times of each stage: {:+.1f} %. Idle {:.1f} % and {:.1f} "
      "%.</p>{}"
      "</figure>\n",
      escape(value_text(comparison.measured.makespan, Unit::kSeconds)),
      escape(value_text(comparison.simulated.makespan, Unit::kSeconds)), comparison.error_percent(),
      100 * comparison.measured.idle_fraction(), 100 * comparison.simulated.idle_fraction(),
      timeline_svg(comparison.title, {comparison.measured, comparison.simulated}));
}

}  // namespace yoke::report
