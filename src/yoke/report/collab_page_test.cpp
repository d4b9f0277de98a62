#include "yoke/report/collab_page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace yoke::report {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

nlohmann::json example_status(bool ended) {
  nlohmann::json peer = {{"id", 0},         {"name", "ab12"},       {"host", "<evil>"},
                         {"role", "peer"},  {"state", "computing"}, {"samples_per_s", 12.5},
                         {"samples", 1000}, {"upload", 2.5e6},      {"download", 5e6},
                         {"share", 0.25},   {"outlier", 0},         {"why_dropped", "stalled"}};
  return {{"run", {{"model.name", "\"mlp\""}}},
          {"peers", {peer}},
          {"epoch", 3},
          {"steps", 10},
          {"accumulated", 16},
          {"target_batch", 64},
          {"loss", 0.5},
          {"losses", {1.0, 0.7, 0.5}},
          {"repeated_rounds", 2},
          {"seconds", 9.0},
          {"ended", ended},
          {"failure", ""}};
}

TEST(CollabPage, ShowsPeersBatchAndLoss) {
  EXPECT_THAT(
      collab_text(example_status(false), 0),
      AllOf(HasSubstr("step 3 of 10, loss 0.5000, batch 16 of 64 samples, 21 samples/s"),
            HasSubstr("2.50 MB/s"), HasSubstr("5.00 MB/s"), HasSubstr("25.0 %"), HasSubstr("stalled")));
  EXPECT_THAT(
      collab_page(example_status(false), 2),
      AllOf(HasSubstr("&lt;evil&gt;"), Not(HasSubstr("<evil>")), HasSubstr("value=\"0.2500\""),
            HasSubstr("<svg"), HasSubstr("class=\"card\"><table"), HasSubstr("location.reload(), 2000")));
}

TEST(CollabPage, AlignsTextToTheLeftAndNumbersToTheRight) {
  EXPECT_THAT(collab_page(example_status(false), 2),
              AllOf(HasSubstr("<th class=\"text\">host</th>"), HasSubstr("<td class=\"text\">computing</td>"),
                    HasSubstr("<td class=\"num\">1,000</td>")));
}

TEST(CollabPage, APeerThatIsGoneHasNoShare) {
  nlohmann::json status = example_status(false);
  status["peers"][0]["state"] = "gone";
  EXPECT_THAT(collab_text(status, 0), Not(HasSubstr("25.0 %")));
  EXPECT_THAT(collab_page(status, 2), HasSubstr("Peers present</th><td class=\"num\">0 of 1</td>"));
}

TEST(CollabPage, AnEndedRunDoesNotReload) {
  EXPECT_THAT(collab_page(example_status(true), 2),
              AllOf(HasSubstr("the run is over"), Not(HasSubstr("reload"))));
}

}  // namespace
}  // namespace yoke::report
