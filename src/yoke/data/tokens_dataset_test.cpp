#include "yoke/data/tokens_dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "yoke/base/error.h"

namespace yoke::data {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

fs::path fresh_folder(const std::string& name) {
  const fs::path folder = fs::path(::testing::TempDir()) / ("yoke_tokens_" + name);
  fs::remove_all(folder);
  fs::create_directories(folder);
  return folder;
}

// Tokens first, first + 1, ….
void write_tokens(const fs::path& path, int first, int count) {
  std::ofstream file(path, std::ios::binary);
  for (int t = first; t < first + count; ++t)
    file.put(static_cast<char>(t & 255)).put(static_cast<char>(t >> 8));
}

DataOptions options(const fs::path& dir, int64_t seq_len = 0) {
  DataOptions o;
  o.name = "tokens";
  o.dir = dir.string();
  o.seq_len = seq_len;
  return o;
}

const SampleSpec kWanted{SampleKind::kTokens, {4}, 1000};

std::string error_of(const DataOptions& o, const SampleSpec& wanted = kWanted, Split split = Split::kTrain) {
  try {
    open(o, split, wanted, 1);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "no error";
}

TEST(TokensDataset, CutsSamplesWhoseTargetIsTheInputMovedOn) {
  const fs::path folder = fresh_folder("good");
  write_tokens(folder / "train.bin", 300, 14);
  const auto data = open(options(folder), Split::kTrain, kWanted, 1);
  EXPECT_EQ(data->size(), 3);  // 3 x 4 and one to look ahead; the last is left
  const std::vector<int64_t> indices{2, 0};
  const Batch batch = data->gather(indices);
  EXPECT_TRUE(torch::equal(batch.inputs[0],
                           torch::tensor({{308, 309, 310, 311}, {300, 301, 302, 303}}, torch::kInt64)));
  EXPECT_TRUE(torch::equal(batch.target, batch.inputs[0] + 1));
}

TEST(TokensDataset, NeedsOneTokenMoreThanTheSamplesLength) {
  const fs::path folder = fresh_folder("exact");
  write_tokens(folder / "train.bin", 0, 5);
  EXPECT_EQ(open(options(folder), Split::kTrain, kWanted, 1)->size(), 1);
  write_tokens(folder / "train.bin", 0, 4);
  EXPECT_THAT(error_of(options(folder)), HasSubstr("4 tokens; one sample needs data.seq_len + 1 = 5"));
}

TEST(TokensDataset, TakesShorterButNotLongerSamplesThanTheModel) {
  const fs::path folder = fresh_folder("length");
  write_tokens(folder / "train.bin", 0, 13);
  const auto data = open(options(folder, 2), Split::kTrain, kWanted, 1);
  EXPECT_EQ(data->size(), 6);
  EXPECT_EQ(data->spec(), (SampleSpec{SampleKind::kTokens, {2}, 1000}));
  EXPECT_THAT(error_of(options(folder, 5)),
              AllOf(HasSubstr("data.seq_len = 5"), HasSubstr("at most 4"), HasSubstr("model.positions")));
}

TEST(TokensDataset, FindsTheTestSplitOfAFolderAndOfAFile) {
  const fs::path folder = fresh_folder("splits");
  write_tokens(folder / "train.bin", 0, 13);
  write_tokens(folder / "val.bin", 0, 5);
  write_tokens(folder / "shakespeare_train.bin", 0, 9);
  write_tokens(folder / "shakespeare_val.bin", 0, 17);
  EXPECT_EQ(open(options(folder), Split::kTest, kWanted, 1)->size(), 1);
  EXPECT_EQ(open(options(folder / "shakespeare_train.bin"), Split::kTrain, kWanted, 1)->size(), 2);
  EXPECT_EQ(open(options(folder / "shakespeare_train.bin"), Split::kTest, kWanted, 1)->size(), 4);
  EXPECT_THAT(error_of(options(folder / "val.bin"), kWanted, Split::kTest), HasSubstr("val.bin.t"));
}

TEST(TokensDataset, RefusesTokensOutsideTheVocabularyThatItUses) {
  const fs::path folder = fresh_folder("vocabulary");
  write_tokens(folder / "train.bin", 990, 13);
  DataOptions o = options(folder);
  EXPECT_THAT(error_of(o), AllOf(HasSubstr("train.bin, byte 20: token 1000"), HasSubstr("model.vocabulary")));
  o.limit = 2;
  EXPECT_EQ(error_of(o), "no error");
}

TEST(TokensDataset, SaysWhatIsMissingOrDoesNotFit) {
  const fs::path folder = fresh_folder("missing");
  EXPECT_THAT(error_of(options(folder)),
              AllOf(HasSubstr((folder / "train.bin").string()), HasSubstr("data.dir")));
  EXPECT_THAT(error_of(options("")), HasSubstr("data/tokens/train.bin"));
  EXPECT_THAT(
      error_of(options(folder), {SampleKind::kImage, {1, 28, 28}, 10}),
      AllOf(HasSubstr("data.name = tokens has tokens"), HasSubstr("image 1x28x28"), HasSubstr("model.name")));
}

}  // namespace
}  // namespace yoke::data
