// Checkpoints that several ranks write together: whole or not at all, whoever fails.
#include "yoke/checkpoint/team.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <mutex>
#include <thread>

#include "yoke/checkpoint/checkpoint.h"
#include "yoke/checkpoint/format/test_folder.h"
#include "yoke/checkpoint/pieces.h"
#include "yoke/checkpoint/weights.h"

namespace yoke::checkpoint {
namespace {

using format::TestFolder;
using ::testing::HasSubstr;

// Ranks as threads of this process.
class Table {
 public:
  explicit Table(int ranks) : ranks_(ranks) {}

  Team seat(int rank) {
    return {rank, ranks_, [this, rank](const std::string& about, const std::string& own) {
              std::unique_lock lock(mutex_);
              std::vector<std::string>& texts = texts_[about + "#" + std::to_string(turn_[{rank, about}]++)];
              texts.resize(static_cast<size_t>(ranks_));
              texts[static_cast<size_t>(rank)] = own;
              changed_.notify_all();
              bool all = changed_.wait_for(lock, std::chrono::seconds(20), [&] {
                return std::none_of(texts.begin(), texts.end(), [](const auto& t) { return t.empty(); });
              });
              if (!all) throw CommError("somebody did not come");
              return texts;
            }};
  }

 private:
  int ranks_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::vector<std::string>> texts_;
  std::map<std::pair<int, std::string>, int> turn_;
};

std::vector<NamedTensor> model_of(float value) {
  return {{"a", torch::full({3, 2}, value)},
          {"b", torch::full({7}, value + 1)},
          {"c", torch::full({1}, value + 2)}};
}

State part_of(float value, int rank, int size) {
  State state;
  state.model = share_of(model_of(value), rank, size);
  // The state of "a" in two pieces, the rest whole.
  if (rank == 0)
    state.optimizer = {{"step", torch::full({3}, value)}, {"m/a@0:4", torch::arange(4).to(torch::kFloat)}};
  if (rank == 1) state.optimizer = {{"m/a@4:6", torch::arange(4, 6).to(torch::kFloat)}};
  state.rest = {{"epoch", value}};
  return state;
}

// Saves steps on all ranks; returns what each threw.
std::vector<std::string> save_together(const TestFolder& out, int ranks, const std::vector<int64_t>& steps,
                                       bool background,
                                       const std::function<void(int, std::string_view)>& failpoint) {
  Table table(ranks);
  std::vector<std::string> errors(static_cast<size_t>(ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      Writer writer(
          out.path(), {.background = background},
          [&, rank](std::string_view point) {
            if (failpoint) failpoint(rank, point);
          },
          table.seat(rank));
      for (int64_t step : steps) {
        try {
          writer.save(step, part_of(static_cast<float>(step), rank, ranks));
          writer.confirm();
        } catch (const std::exception& error) {
          errors[static_cast<size_t>(rank)] = error.what();
        }
      }
    });
  for (std::thread& thread : threads) thread.join();
  return errors;
}

TEST(Team, EveryRankWritesItsPart) {
  for (bool background : {false, true}) {
    for (int ranks : {2, 3}) {
      TestFolder out;
      for (const std::string& error : save_together(out, ranks, {1, 2}, background, nullptr))
        EXPECT_EQ(error, "");
      EXPECT_TRUE(
          std::filesystem::exists(out / fmt::format("step-2/model-00001-of-0000{}.safetensors", ranks)));
      Loaded loaded = load(out.path());
      EXPECT_EQ(loaded.step, 2);
      EXPECT_EQ(loaded.state.rest.at("epoch"), 2.0);
      std::vector<NamedTensor> own = model_of(0);
      restore_into(loaded.state.model, own, "model");
      EXPECT_TRUE(torch::equal(own[1].second, model_of(2)[1].second));
      for (const auto& [name, tensor] : loaded.state.optimizer)
        if (name == "m/a") {
          EXPECT_TRUE(torch::equal(tensor, torch::arange(6).to(torch::kFloat).view({3, 2})));
        }
      EXPECT_EQ(loaded.state.optimizer.size(), 2u);
      EXPECT_EQ(load_weights(out / "step-2").size(), 3u) << "as Hugging Face reads it";
      EXPECT_EQ(load_weights(out.path()).size(), 3u);
    }
  }
}

TEST(Team, AFailureOfOneFailsTheSaveOfAllAndLosesNothing) {
  for (int culprit : {0, 1, 2}) {
    for (bool background : {false, true}) {
      TestFolder out;
      std::atomic<int> saves = 0;
      auto fail_second = [&](int rank, std::string_view point) {
        if (rank == culprit && point.find("optimizer") == 0 &&
            point.find(": created") != std::string_view::npos && ++saves == 2)
          throw ConfigError("disk full, as it were.");
      };
      auto errors = save_together(out, 3, {1, 2}, background, fail_second);
      for (int rank = 0; rank < 3; ++rank) {
        std::string own = rank == culprit ? "" : fmt::format("rank {}: ", culprit);
        EXPECT_THAT(errors[static_cast<size_t>(rank)],
                    HasSubstr("(step 2) could not be saved: " + own + "disk full"));
      }
      EXPECT_EQ(load(out.path()).step, 1);
      EXPECT_FALSE(std::filesystem::exists(out / "step-2.tmp"));
      // All ranks go on to the next save, which succeeds.
      saves = 0;
      save_together(out, 3, {3, 4, 5}, background, fail_second);
      EXPECT_EQ(load(out.path()).step, 5);
    }
  }
}

TEST(Team, AllRanksAgreeWhetherAPeerFailed) {
  // What ranks 1 and 2 tell: a full disk and a failed peer.
  auto meet = [](const std::function<nlohmann::json()>& own_work) -> std::optional<ExitCode> {
    Team team{0, 3, [](const std::string&, const std::string& own) {
                return std::vector<std::string>{own, R"({"code":2,"problem":"disk full."})",
                                                R"({"code":3,"problem":"rank 1 is gone"})"};
              }};
    try {
      Meeting(team, 1).after("files", own_work);
    } catch (const Error& error) {
      EXPECT_NE(dynamic_cast<const CommError*>(&error), nullptr) << error.what();
      return error.code();
    }
    return std::nullopt;
  };
  EXPECT_EQ(meet([]() -> nlohmann::json { return nullptr; }), ExitCode::kPeerFailed);
  EXPECT_EQ(meet([]() -> nlohmann::json { throw ConfigError("disk full."); }), ExitCode::kPeerFailed);
  EXPECT_EQ(meet([]() -> nlohmann::json { throw std::runtime_error("bad"); }), ExitCode::kPeerFailed);
}

TEST(Team, WhatAnotherRankToldWronglyIsAnErrorInOurOwnWords) {
  auto error_of = [](const std::function<void()>& action) -> std::string {
    try {
      action();
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  for (const char* wrong :
       {"", "{", "[]", "7", "{}", R"({"code":0})", R"({"code":-1,"problem":""})",
        R"({"code":99,"problem":""})", R"({"code":"0","problem":""})", R"({"code":0,"problem":7})"}) {
    Team team{0, 2, [&](const std::string&, const std::string& own) {
                return std::vector<std::string>{own, wrong};
              }};
    std::string error = error_of([&] { Meeting(team, 1).after("files", [] { return nullptr; }); });
    EXPECT_THAT(error, HasSubstr("unexpected message from rank 1")) << wrong;
    EXPECT_THAT(error, ::testing::Not(HasSubstr("json.exception")));
  }
  // An error that quotes bytes which are no text reaches the others.
  Team team{0, 1, [](const std::string&, const std::string& own) { return std::vector<std::string>{own}; }};
  EXPECT_THAT(error_of([&] {
                Meeting(team, 1).after("files", []() -> nlohmann::json { throw ConfigError("path \xff"); });
              }),
              HasSubstr("path"));
  for (const nlohmann::json& part :
       {nlohmann::json(), nlohmann::json({{"files", 3}}),
        nlohmann::json({{"files", {{{"name", 7}, {"bytes", 1}, {"digest", ""}}}}})}) {
    EXPECT_THROW(files_of_part(part), CommError);
    EXPECT_THROW(index_of_parts({part}), CommError);
  }
}

TEST(Team, SharesAreWholeAndBalanced) {
  std::vector<NamedTensor> tensors;
  for (int i = 0; i < 40; ++i) tensors.emplace_back(std::to_string(i), torch::zeros({1 + (i * 37) % 100}));
  for (int size : {1, 2, 3, 7}) {
    size_t all = 0;
    for (int rank = 0; rank < size; ++rank) {
      auto part = share_of(tensors, rank, size);
      all += part.size();
      int64_t bytes = 0;
      for (const auto& [name, tensor] : part) bytes += static_cast<int64_t>(tensor.nbytes());
      EXPECT_NEAR(static_cast<double>(bytes), 4 * 1980.0 / size, 500);
    }
    EXPECT_EQ(all, tensors.size());
  }
}

TEST(Team, AFileSaysWhoWroteIt) {
  for (int rank : {0, 1, 11}) EXPECT_EQ(rank_of_file(file_name("model", {rank, 12, nullptr})), rank);
  for (const char* name : {"model.safetensors", "-of-2", "model-x-of-2.safetensors", "model-00000-of-00002"})
    EXPECT_EQ(rank_of_file(name), std::nullopt) << name;
}

TEST(Pieces, WhatDoesNotFitIsAnError) {
  std::vector<NamedTensor> model = {{"a", torch::zeros({6})}};
  auto whole = [](int64_t count) { return torch::zeros({count}); };
  EXPECT_THROW(join_pieces({{"m/a@0:4", whole(4)}}, model, "x"), ConfigError) << "incomplete";
  EXPECT_THROW(join_pieces({{"m/a@0:4", whole(4)}, {"m/a@3:6", whole(3)}}, model, "x"), ConfigError)
      << "overlap";
  EXPECT_THROW(join_pieces({{"m/a@0:7", whole(7)}}, model, "x"), ConfigError) << "too long";
  EXPECT_THROW(join_pieces({{"m/a@0:6", whole(5)}}, model, "x"), ConfigError) << "not what it says";
  EXPECT_THROW(join_pieces({{"m/b@0:6", whole(6)}}, model, "x"), ConfigError) << "of nothing";
  EXPECT_THROW(join_pieces({{"m/a@0:6@channels_last", whole(6)}}, model, "x"), ConfigError) << "no channels";
  EXPECT_EQ(join_pieces({{"m/a@x:6", whole(6)}}, model, "x")[0].first, "m/a@x:6") << "a name like another";
}

}  // namespace
}  // namespace yoke::checkpoint
