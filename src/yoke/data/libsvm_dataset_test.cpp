#include "yoke/data/libsvm_dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/functional/embedding.h>

#include <filesystem>
#include <fstream>

#include "yoke/base/error.h"

namespace yoke::data {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

fs::path fresh_folder(const std::string& name) {
  const fs::path folder = fs::path(::testing::TempDir()) / ("yoke_libsvm_" + name);
  fs::remove_all(folder);
  fs::create_directories(folder);
  std::ofstream(folder / "train.libsvm") << "+1 1:0.5 4:2\n-1\n+1 2:1 3:1 9:-1\n";
  std::ofstream(folder / "test.libsvm") << "1 1:1\n";
  std::ofstream(folder / "a9a") << "1 1:1\n0 2:1\n";
  std::ofstream(folder / "a9a.t") << "1 1:1\n0 2:1\n0 3:1\n";
  return folder;
}

DataOptions options(const fs::path& dir) {
  DataOptions o;
  o.name = "libsvm";
  o.dir = dir.string();
  return o;
}

const SampleSpec kWanted{SampleKind::kSparse, {10}, 2};

std::string error_of(const DataOptions& o, const SampleSpec& wanted) {
  try {
    open(o, Split::kTrain, wanted, 1);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "no error";
}

TEST(LibsvmDataset, GivesIndicesValuesAndOffsets) {
  const auto data = open(options(fresh_folder("good")), Split::kTrain, kWanted, 1);
  EXPECT_EQ(data->size(), 3);
  const std::vector<int64_t> indices{2, 1, 0};
  const Batch batch = data->gather(indices);
  EXPECT_TRUE(torch::equal(batch.inputs[0], torch::tensor({1, 2, 8, 0, 3}, torch::kInt64)));
  EXPECT_TRUE(torch::equal(batch.inputs[1], torch::tensor({1.0f, 1.0f, -1.0f, 0.5f, 2.0f})));
  EXPECT_TRUE(torch::equal(batch.inputs[2], torch::tensor({0, 3, 3}, torch::kInt64)));
  EXPECT_TRUE(torch::equal(batch.target, torch::tensor({1.0f, 0.0f, 1.0f})));
}

TEST(LibsvmDataset, SuitsEmbeddingBag) {
  const auto data = open(options(fresh_folder("bag")), Split::kTrain, kWanted, 1);
  const std::vector<int64_t> indices{0, 1, 2};
  const Batch batch = data->gather(indices);
  namespace F = torch::nn::functional;
  const torch::Tensor sums =
      F::embedding_bag(batch.inputs[0], torch::arange(10, torch::kFloat32).view({10, 1}),
                       F::EmbeddingBagFuncOptions()
                           .mode(torch::kSum)
                           .offsets(batch.inputs[2])
                           .per_sample_weights(batch.inputs[1]));
  EXPECT_TRUE(torch::equal(sums.view({3}), torch::tensor({6.0f, 0.0f, -5.0f})));
}

TEST(LibsvmDataset, FindsTheTestSplitOfAFolderAndOfAFile) {
  const fs::path folder = fresh_folder("splits");
  EXPECT_EQ(open(options(folder), Split::kTest, kWanted, 1)->size(), 1);
  EXPECT_EQ(open(options(folder / "a9a"), Split::kTrain, kWanted, 1)->size(), 2);
  EXPECT_EQ(open(options(folder / "a9a"), Split::kTest, kWanted, 1)->size(), 3);
}

TEST(LibsvmDataset, SaysWhatDoesNotFit) {
  const DataOptions o = options(fresh_folder("fit"));
  EXPECT_THAT(error_of(o, {SampleKind::kSparse, {8}, 2}),
              AllOf(HasSubstr("train.libsvm:3, byte"), HasSubstr("model.features")));
  EXPECT_THAT(error_of(o, {SampleKind::kVector, {8}, 2}),
              AllOf(HasSubstr("sparse vectors"), HasSubstr("vector of 8")));
  DataOptions limited = o;
  limited.limit = 2;
  EXPECT_EQ(open(limited, Split::kTrain, {SampleKind::kSparse, {8}, 2}, 1)->size(), 2);
}

}  // namespace
}  // namespace yoke::data
