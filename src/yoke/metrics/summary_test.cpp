#include "yoke/metrics/summary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "yoke/base/error.h"

namespace yoke::metrics {
namespace {

using ::testing::HasSubstr;

Summary full() {
  return {.model = "lenet",
          .data = "fashion_mnist",
          .optimizer = "sgd",
          .precision = "fp32",
          .device = "cpu",
          .device_name = "two cores",
          .steps = 938,
          .epochs = 1,
          .world_size = 2,
          .final_loss = 0.31,
          .accuracy = 0.89,
          .eval_loss = 0.3,
          .perplexity = 1.35,
          .top5_accuracy = 0.99,
          .classes = make_class_results({4, 1, 0, 5}, {"bag", "coat"}),
          .samples_per_s = 9000,
          .tokens_per_s = 1e6,
          .step_seconds = {0.007, 0.009},
          .parameters = 61706,
          .parameter_hash = "ab12",
          .seconds = 12.5,
          .peak_memory_bytes = {100, 200},
          .scaling_efficiency = 0.95,
          .resumed_from = 400,
          .started = "2026-02-28T17:03:12Z",
          .command = "yoke train x.toml"};
}

TEST(Summary, ReadsBackEverythingItWrote) {
  EXPECT_EQ(to_json(parse_summary(to_json(full()).dump())).dump(), to_json(full()).dump());
}

TEST(Summary, HasTheKeysThatScriptsRelyOn) {
  auto json = to_json(Summary{});
  for (const char* key : {"steps", "epochs", "world_size", "final_loss", "samples_per_s", "step_seconds",
                          "parameters", "seconds", "peak_memory_bytes"}) {
    EXPECT_TRUE(json.contains(key)) << key;
  }
  for (const char* key : {"accuracy", "scaling_efficiency", "resumed_from", "command"}) {
    EXPECT_FALSE(json.contains(key)) << key;
  }
  EXPECT_EQ(to_json(full())["step_seconds"]["p95"], 0.009);
  EXPECT_EQ(to_json(full())["peak_memory_bytes"][1], 200);
}

TEST(Summary, WritesALossThatIsNotFiniteAsNull) {
  Summary summary = full();
  summary.final_loss = std::nan("");
  EXPECT_TRUE(to_json(summary)["final_loss"].is_null());
  EXPECT_TRUE(std::isnan(parse_summary(to_json(summary).dump()).final_loss));
}

TEST(Summary, RefusesMalformedDocumentsAndNamesTheField) {
  auto error_with = [](const char* key, const nlohmann::ordered_json& value) -> std::string {
    auto json = to_json(full());
    json[key] = value;
    try {
      parse_summary(json.dump());
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_THAT(error_with("steps", "many"), HasSubstr("\"steps\""));
  EXPECT_THAT(error_with("step_seconds", 3), HasSubstr("\"step_seconds\""));
  EXPECT_THAT(error_with("peak_memory_bytes", 3), HasSubstr("an array"));
  EXPECT_THAT(error_with("peak_memory_bytes", {1, -2}), HasSubstr("peak_memory_bytes"));
  EXPECT_THAT(error_with("model", 5), HasSubstr("\"model\""));
  std::string text = to_json(full()).dump();
  for (size_t length = 0; length < text.size(); length += 7) {
    EXPECT_THROW(parse_summary(text.substr(0, length)), ConfigError) << length;
  }
}

TEST(Summary, TellsTimeInUtc) {
  EXPECT_EQ(utc_time(0), "1970-01-01T00:00:00Z");
  EXPECT_EQ(utc_time(1700000000.9), "2023-11-14T22:13:20Z");
}

TEST(Summary, SaysWhatTheTrainingComputesAndTheWholeWould) {
  Summary summary;
  summary.train_flops = 8.64e19;
  summary.whole_training = WholeTraining{90, 3600, 8.64e20};
  const nlohmann::ordered_json json = to_json(summary);
  EXPECT_DOUBLE_EQ(json.at("train_pflop_days"), 1);
  EXPECT_DOUBLE_EQ(json.at("whole_training").at("pflop_days"), 10);
  const Summary read = parse_summary(json.dump());
  EXPECT_EQ(read.train_flops, 8.64e19);
  EXPECT_EQ(read.whole_training->epochs, 90);
  EXPECT_EQ(read.whole_training->seconds, 3600);
  EXPECT_EQ(read.whole_training->flops, 8.64e20);
  EXPECT_FALSE(to_json(Summary()).contains("train_flops"));
}

}  // namespace
}  // namespace yoke::metrics
