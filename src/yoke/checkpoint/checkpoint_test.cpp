#include "yoke/checkpoint/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <atomic>

#include "yoke/checkpoint/format/test_folder.h"
#include "yoke/checkpoint/random_state.h"

namespace yoke::checkpoint {
namespace {

namespace fs = std::filesystem;
using format::flip_bit;
using format::TestFolder;
using testing::HasSubstr;

State state_of(float value) {
  State state;
  state.model = {{"weight", torch::full({50, 20}, value)},
                 {"steps", torch::full({}, static_cast<int64_t>(value))}};
  state.optimizer = {{"momentum/weight", torch::full({50, 20}, -value, torch::kDouble)}};
  state.rest = {{"epoch", value}};
  return state;
}

TEST(Writer, SavesWhatLoadGivesBack) {
  for (bool background : {true, false}) {
    TestFolder out;
    Writer writer(out / "checkpoints", {.background = background});
    writer.save(3, state_of(3));
    writer.wait();
    auto loaded = load_newest(out.path());
    ASSERT_TRUE(loaded);
    EXPECT_EQ(loaded->step, 3);
    EXPECT_EQ(loaded->path, out / "checkpoints/step-3");
    EXPECT_TRUE(loaded->passed_over.empty());
    EXPECT_EQ(loaded->state.rest.at("epoch"), 3.0);
    State own = state_of(0);
    restore_into(loaded->state.model, own.model, "model");
    restore_into(loaded->state.optimizer, own.optimizer, "optimizer");
    EXPECT_TRUE(torch::equal(own.model[0].second, state_of(3).model[0].second));
    EXPECT_TRUE(torch::equal(own.optimizer[0].second, state_of(3).optimizer[0].second));
    EXPECT_EQ(own.model[1].second.item<int64_t>(), 3);
  }
}

TEST(Writer, LetsTheTensorsChangeOnceSaveHasReturned) {
  TestFolder out;
  std::promise<void> go;
  std::atomic<bool> first = true;
  auto gate = go.get_future();
  Writer writer(out.path(), {}, [&](std::string_view) {
    if (first.exchange(false)) gate.wait();  // nothing is written before the tensors have changed
  });
  State state = state_of(1);
  writer.save(1, state);
  state.model[0].second.fill_(99);
  state.rest["epoch"] = 99;
  go.set_value();
  writer.wait();
  Loaded loaded = load(out.path());
  State own = state_of(0);
  restore_into(loaded.state.model, own.model, "model");
  EXPECT_TRUE(torch::equal(own.model[0].second, state_of(1).model[0].second));
  EXPECT_EQ(loaded.state.rest.at("epoch"), 1.0);
}

TEST(Writer, KeepsTheNewestAndAcceptsOtherShapes) {
  TestFolder out;
  {
    Writer writer(out.path(), {.keep = 2});
    writer.reserve(state_of(0));
    for (int64_t step : {1, 2, 3}) writer.save(step, state_of(static_cast<float>(step)));
    State other = state_of(4);
    other.model.emplace_back("more", torch::ones({7}));
    writer.save(4, other);
  }
  EXPECT_FALSE(fs::exists(out / "step-2"));
  EXPECT_TRUE(fs::exists(out / "step-3"));
  EXPECT_EQ(load(out.path()).state.model.size(), 3u);
}

TEST(Writer, AFailedSaveIsAWarningAndTheNextOneTriesAgain) {
  for (bool background : {false, true}) {
    TestFolder out;
    std::atomic<bool> fail = false;
    Writer writer(out.path(), {.background = background}, [&](std::string_view point) {
      if (fail && point == "optimizer.safetensors: created") throw ConfigError("disk full, as it were.");
    });
    writer.save(1, state_of(1));
    writer.confirm();
    fail = true;
    ::testing::internal::CaptureStderr();
    writer.save(2, state_of(2));
    writer.wait();
    std::string said = ::testing::internal::GetCapturedStderr();
    EXPECT_THAT(said, HasSubstr("saving the checkpoint of step 2 failed: disk full, as it were."));
    EXPECT_THAT(said, HasSubstr("The last good checkpoint is " + (out / "step-1").string()));
    for (int twice = 0; twice < 2; ++twice) {
      try {
        writer.confirm();
        FAIL();
      } catch (const CheckpointError& error) {
        EXPECT_THAT(error.what(), HasSubstr("the newest state (step 2) could not be saved: disk full"));
        EXPECT_THAT(error.what(), HasSubstr((out / "step-1").string()));
      }
    }
    EXPECT_FALSE(fs::exists(out / "step-2.tmp"));
    fail = false;
    writer.save(3, state_of(3));
    writer.confirm();
    EXPECT_EQ(load(out.path()).step, 3);
  }
}

TEST(Writer, OldCheckpointsThatCannotBeRemovedCostNoNewOne) {
  TestFolder out;
  Writer writer(out.path(), {.keep = 1}, [&](std::string_view point) {
    if (point == "prune: moved aside") throw fs::filesystem_error("as it were", std::error_code());
  });
  for (int64_t step : {1, 2, 3}) {
    writer.save(step, state_of(static_cast<float>(step)));
    writer.confirm();
  }
  EXPECT_EQ(load(out.path()).step, 3);
}

TEST(Writer, AFolderThatVanishesIsMadeAgain) {
  TestFolder out;
  Writer writer(out / "run" / "checkpoints", {});
  writer.save(1, state_of(1));
  writer.wait();
  fs::remove_all(out / "run");
  writer.save(2, state_of(2));
  writer.wait();
  writer.save(3, state_of(3));
  writer.confirm();
  EXPECT_EQ(load(out / "run").step, 3);
}

TEST(Writer, NamesAFolderItCannotMake) {
  Writer writer("/proc/yoke/checkpoints", {});
  writer.save(1, state_of(1));
  try {
    writer.confirm();
    FAIL();
  } catch (const CheckpointError& error) {
    EXPECT_THAT(error.what(), HasSubstr("/proc/yoke/checkpoints: cannot create the folder"));
    EXPECT_THAT(error.what(), HasSubstr("No earlier checkpoint"));
  }
}

TEST(Load, FindsNothingWhereNothingWasSaved) {
  TestFolder out;
  EXPECT_FALSE(load_newest(out.path()));
  EXPECT_FALSE(load_newest(out / "nowhere"));
  EXPECT_THROW(load(out.path()), CheckpointError);
}

TEST(Load, PassesOverDamagedCheckpointsAndSaysWhy) {
  TestFolder out;
  {
    Writer writer(out.path(), {.keep = 5});
    for (int64_t step : {1, 2, 3}) writer.save(step, state_of(static_cast<float>(step)));
  }
  flip_bit(out / "step-3/optimizer.safetensors", 4000);
  fs::resize_file(out / "step-2/model.safetensors", 100);
  auto loaded = load(out.path());
  EXPECT_EQ(loaded.step, 1);
  ASSERT_EQ(loaded.passed_over.size(), 2u);
  EXPECT_THAT(loaded.passed_over[0].problem, HasSubstr("optimizer.safetensors"));
  fs::remove(out / "step-1/COMMITTED");
  try {
    load_newest(out.path());
    FAIL();
  } catch (const CheckpointError& error) {
    EXPECT_THAT(error.what(), HasSubstr("none of 3 checkpoints is usable: step-3: optimizer.safetensors"));
    EXPECT_EQ(error.code(), ExitCode::kCheckpoint);
  }
}

TEST(RandomState, GivesTheSameDrawsAgain) {
  torch::manual_seed(5);
  torch::randn({3});
  auto state = nlohmann::json::parse(random_state(torch::kCPU).dump());
  auto expected = torch::randn({1000});
  torch::rand({17});
  set_random_state(state, torch::kCPU);
  EXPECT_TRUE(torch::equal(torch::randn({1000}), expected));
}

TEST(RandomState, RefusesWhatIsNone) {
  auto state = random_state(torch::kCPU);
  auto text = state["cpu"].get<std::string>();
  for (const auto& bad : {nlohmann::json("x"), nlohmann::json{{"cpu", 3}}, nlohmann::json{{"cpu", "abc"}},
                          nlohmann::json{{"cpu", "zz"}}, nlohmann::json{{"cpu", text.substr(2)}},
                          nlohmann::json{{"cpu", ""}}}) {
    EXPECT_THROW(set_random_state(bad, torch::kCPU), CheckpointError) << bad.dump().substr(0, 30);
  }
}

}  // namespace
}  // namespace yoke::checkpoint
