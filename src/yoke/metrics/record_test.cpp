#include "yoke/metrics/record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "yoke/base/error.h"

namespace yoke::metrics {
namespace {

using ::testing::HasSubstr;

constexpr const char* kSmall =
    R"({"step":3,"time":1.5,"loss":2.25,"lr":0.1,"samples":192,"samples_per_s":64})";

std::string error_of(const std::string& line) {
  try {
    parse_record(line);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "no error";
}

TEST(Record, HasItsStepFirstAndLeavesOutWhatIsAbsent) {
  Record record;
  record.step = 10;
  record.loss = 0.5;
  EXPECT_EQ(to_json(record).dump(),
            R"({"step":10,"epoch":0.0,"time":0.0,"loss":0.5,"lr":0.0,"samples":0,"samples_per_s":0.0})");
}

TEST(Record, ReadsBackEverythingItWrote) {
  Record record{.step = 7,
                .epoch = 0.25,
                .time = 3.5,
                .loss = 1.0 / 3,
                .lr = 1e-5,
                .samples = 448,
                .samples_per_s = 128.5,
                .tokens_per_s = 9e6,
                .grad_norm = 1.25,
                .loss_scale = 65536,
                .noise_scale = 512,
                .comm_seconds = 0.02,
                .accuracy = 0.91,
                .eval_loss = 0.3,
                .memory_bytes = 123456789,
                .split = TimeSplit{0.1, 0.2, 0.3, 0.05, 0.4, 0.5}};
  Record again = parse_record(to_json(record).dump());
  EXPECT_EQ(to_json(again).dump(), to_json(record).dump());
  EXPECT_EQ(again.loss, record.loss);
  EXPECT_EQ(again.memory_bytes, 123456789);
  EXPECT_EQ(again.split->backward, 0.3);
}

TEST(Record, WritesNumbersThatAreNotFiniteAsNullAndReadsThemAsNaN) {
  Record record;
  record.loss = std::nan("");
  record.grad_norm = std::numeric_limits<double>::infinity();
  std::string line = to_json(record).dump();
  EXPECT_THAT(line, HasSubstr(R"("loss":null)"));
  EXPECT_THAT(line, HasSubstr(R"("grad_norm":null)"));
  Record again = parse_record(line);
  EXPECT_TRUE(std::isnan(again.loss));
  ASSERT_TRUE(again.grad_norm.has_value());
  EXPECT_TRUE(std::isnan(*again.grad_norm));
}

TEST(Record, PassesOverKeysItDoesNotKnow) {
  std::string line = kSmall;
  line.insert(1, R"("tflops":[1,{"x":null}],)");
  EXPECT_EQ(parse_record(line).step, 3);
}

TEST(Record, RefusesALineThatIsCutOff) {
  std::string line = kSmall;
  for (size_t length = 0; length < line.size(); ++length) {
    EXPECT_THROW(parse_record(line.substr(0, length)), ConfigError) << length;
  }
  EXPECT_THAT(error_of(line.substr(0, 20)), HasSubstr("not a JSON object"));
}

TEST(Record, RefusesWhatIsNotARecordAndNamesTheField) {
  EXPECT_THAT(error_of("[]"), HasSubstr("not a JSON object"));
  EXPECT_THAT(error_of("{}"), HasSubstr("\"step\" is missing"));
  auto with = [](const std::string& from, const std::string& to) {
    std::string line = kSmall;
    line.replace(line.find(from), from.size(), to);
    return error_of(line);
  };
  EXPECT_THAT(with(R"("step":3)", R"("step":-3)"), HasSubstr("\"step\""));
  EXPECT_THAT(with(R"("step":3)", R"("step":3.5)"), HasSubstr("an integer"));
  EXPECT_THAT(with(R"("step":3)", R"("step":9223372036854775808)"), HasSubstr("an integer"));
  EXPECT_THAT(with(R"("step":3)", R"("step":null)"), HasSubstr("an integer"));
  EXPECT_THAT(with(R"("loss":2.25)", R"("loss":"low")"), HasSubstr("\"loss\" is a string"));
  EXPECT_THAT(with(R"("loss":2.25)", R"("loss":1e999)"), HasSubstr("not a JSON object"));
  EXPECT_THAT(with(R"("lr":0.1)", R"("lr":0.1,"split":3)"), HasSubstr("\"split\" is a number"));
  EXPECT_THAT(with(R"("lr":0.1)", R"("lr":0.1,"memory_bytes":-1)"), HasSubstr("memory_bytes"));
}

TEST(Record, SurvivesDeepNesting) {
  EXPECT_THROW(parse_record(std::string(200000, '[')), ConfigError);
  EXPECT_THROW(parse_record(std::string(100000, '[') + std::string(100000, ']')), ConfigError);
}

}  // namespace
}  // namespace yoke::metrics
