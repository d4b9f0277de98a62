#include "yoke/report/class_section.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace yoke::report {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(ClassSection, DrawsAMatrixWithSharesOfEachRow) {
  const auto results = metrics::make_class_results({9, 1, 5, 5}, {"cat", "<dog>"});
  EXPECT_THAT(class_section(results),
              AllOf(HasSubstr("cat taken for &lt;dog&gt;: 1 of 10 (10.0%)"), HasSubstr("Confusion matrix"),
                    HasSubstr("5 of 10"), Not(HasSubstr("<dog>")), Not(HasSubstr("Most confused"))));
}

TEST(ClassSection, ListsPairsWhereAMatrixWouldBeTooLarge) {
  std::vector<int64_t> counts(40 * 40, 0);
  for (size_t i = 0; i < 40; ++i) counts[i * 41] = 8;
  counts[3 * 40 + 4] = 2;
  EXPECT_THAT(class_section(metrics::make_class_results(counts, {})),
              AllOf(HasSubstr("<td>3 → 4</td><td class=\"num\">2 of 10</td><td class=\"num\">20.0%</td>"),
                    Not(HasSubstr("<svg"))));
}

TEST(ClassSection, ShortensLongNamesAtWholeCharacters) {
  const auto results = metrics::make_class_results({1, 0, 0, 1}, {"ääääääääääääääää", "b"});
  EXPECT_THAT(confusion_svg(results), HasSubstr(">ääääää…<"));
}

}  // namespace
}  // namespace yoke::report
