// What a classifier confuses, as a section of a report.
#pragma once

#include <string>

#include "yoke/metrics/class_results.h"

namespace yoke::report {

// Rows are classes, columns what they were taken for; darker is a larger share of the row. Requires a
// confusion matrix.
std::string confusion_svg(const metrics::ClassResults& results);

// The matrix, or the most confused pairs where there are too many classes for one, and the classes that are
// recognised worst.
std::string class_section(const metrics::ClassResults& results);

}  // namespace yoke::report
