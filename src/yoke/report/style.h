// The report's style sheet.
#pragma once

namespace yoke::report {

// Calm colours with enough contrast in light and dark; text at least 4.5:1, curves at least 3:1.
extern const char* const kChartStyle;  // colours and charts
extern const char* const kStyle;       // the rest of a page, after kChartStyle

}  // namespace yoke::report
