// Pictures are the same whatever the number of ranks, threads and batches; broken files are named.
#include "yoke/data/images_dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "yoke/base/error.h"
#include "yoke/base/file.h"
#include "yoke/data/formats/images/test_pictures.h"
#include "yoke/data/loader.h"

namespace yoke::data {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int64_t kSide = 16, kClasses = 2;
const SampleSpec kWanted{SampleKind::kImage, {3, kSide, kSide}, kClasses};

// 12 pictures for training and 4 to test, of two classes.
struct Pictures : PictureFolder {
  Pictures() {
    for (int i = 0; i < 16; ++i) {
      const Size size{40 + i, 50 - i};
      const std::string name = (i < 12 ? "train/" : "val/") + std::string(i % 2 == 0 ? "cat/" : "dog/");
      write(name + std::to_string(100 + i) + (i % 3 == 0 ? ".png" : ".jpg"),
            i % 3 == 0 ? make_png(size, gradient(size)) : make_jpeg(size, gradient(size)));
    }
  }
  DataOptions options() const {
    DataOptions options;
    options.name = "images";
    options.dir = path.string();
    options.batch_size = 4;
    options.augment = "imagenet";
    options.jitter = 0.3;
    options.on_bad_file = "skip";
    return options;
  }
};

std::string open_error(const DataOptions& options, Split split = Split::kTrain, SampleSpec wanted = kWanted) {
  try {
    const auto set = open(options, split, wanted, 1);
    std::vector<int64_t> all(static_cast<size_t>(set->size()));
    for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int64_t>(i);
    set->gather(all);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "no error";
}

// Batches of two epochs, those of all ranks after each other.
std::vector<torch::Tensor> pictures_of(const Dataset& set, DataOptions options, int64_t ranks,
                                       int64_t workers) {
  options.workers = workers;
  options.batch_size /= ranks;
  std::vector<std::unique_ptr<Loader>> loaders;
  for (int64_t rank = 0; rank < ranks; ++rank)
    loaders.push_back(std::make_unique<Loader>(set, options, 7, Shard{rank, ranks}));
  std::vector<torch::Tensor> batches;
  for (int64_t i = 0; i < 2 * loaders[0]->batches_per_epoch(); ++i) {
    std::vector<torch::Tensor> parts;
    for (auto& loader : loaders) {
      const Batch batch = loader->next();
      parts.push_back(torch::cat(
          {batch.inputs[0].flatten(1), batch.target.to(torch::kFloat).view({batch.samples, -1})}, 1));
    }
    batches.push_back(torch::cat(parts));
  }
  return batches;
}

TEST(ImagesDataset, GivesTheSamePicturesForEveryNumberOfRanksAndThreads) {
  const Pictures folder;
  for (double mixup : {0.0, 0.4}) {
    DataOptions options = folder.options();
    options.mixup = mixup;
    const auto set = open(options, Split::kTrain, kWanted, 3);
    const std::vector<torch::Tensor> alone = pictures_of(*set, options, 1, 0);
    for (auto [ranks, workers] : {std::pair<int64_t, int64_t>{1, 3}, {2, 1}, {4, 2}}) {
      const std::vector<torch::Tensor> others = pictures_of(*set, options, ranks, workers);
      ASSERT_EQ(alone.size(), others.size());
      for (size_t i = 0; i < alone.size(); ++i)
        EXPECT_TRUE(alone[i].equal(others[i])) << "batch " << i << " on " << ranks << " ranks";
    }
  }
}

TEST(ImagesDataset, DrawsAnewInEveryEpochAndForEverySeed) {
  const Pictures folder;
  const auto set = open(folder.options(), Split::kTrain, kWanted, 3);
  const auto other = open(folder.options(), Split::kTrain, kWanted, 4);
  const std::vector<int64_t> one = {5};
  const torch::Tensor first = set->draw(one, 0).inputs[0];
  EXPECT_TRUE(first.equal(set->draw(one, 0).inputs[0]));
  EXPECT_FALSE(first.equal(set->draw(one, 1).inputs[0]));
  EXPECT_FALSE(first.equal(other->draw(one, 0).inputs[0]));
}

TEST(ImagesDataset, TestPicturesAreTheCentreWhateverTheNumberOfThreads) {
  const Pictures folder;
  DataOptions options = folder.options();
  const std::vector<int64_t> all = {0, 1, 2, 3};
  const Batch one = open(options, Split::kTest, kWanted, 3)->gather(all);
  options.workers = 3;
  const Batch threads = open(options, Split::kTest, kWanted, 9)->gather(all);
  EXPECT_TRUE(one.inputs[0].equal(threads.inputs[0]));
  EXPECT_TRUE(one.target.equal(torch::tensor({0, 0, 1, 1})));
  EXPECT_NEAR(one.inputs[0][0][0].mean().item<float>(), (0.5 - 0.485) / 0.229, 0.1);
}

TEST(ImagesDataset, NamesItsClasses) {
  const Pictures folder;
  EXPECT_THAT(open(folder.options(), Split::kTest, kWanted, 3)->class_names(),
              testing::ElementsAre("cat", "dog"));
}

TEST(ImagesDataset, MixesPairsOfSamplesAndTheirClasses) {
  const Pictures folder;
  DataOptions options = folder.options();
  options.mixup = 1;
  const auto set = open(options, Split::kTrain, kWanted, 3);
  std::vector<int64_t> all(12);
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int64_t>(i);
  const Batch batch = set->gather(all);
  EXPECT_EQ(batch.target.sizes(), (std::vector<int64_t>{12, kClasses}));
  EXPECT_TRUE(batch.target.sum(1).allclose(torch::ones(12)));
  EXPECT_GT(batch.target.eq(1).logical_not().any(1).sum().item<int64_t>(), 2) << "pairs of two classes";
  EXPECT_EQ(open(options, Split::kTest, kWanted, 3)->gather({all.data(), 1}).target.dim(), 1);
}

TEST(ImagesDataset, StopsAtABrokenFileAndNamesIt) {
  const Pictures folder;
  const Size size{30, 30};
  const std::string whole = make_jpeg(size, gradient(size));
  folder.write("train/cat/000.jpg", whole.substr(0, whole.size() - 50));
  DataOptions options = folder.options();
  EXPECT_EQ(open_error(options), "no error");
  options.on_bad_file = "stop";
  EXPECT_THAT(open_error(options), AllOf(HasSubstr("train/cat/000.jpg: "), HasSubstr("ends early"),
                                         HasSubstr("data.on_bad_file = \"skip\"")));
}

TEST(ImagesDataset, TrainsOnTheNextFileInPlaceOfABrokenOne) {
  const Pictures folder;
  DataOptions options = folder.options();
  options.augment = "none";
  options.jitter = 0;
  folder.write("train/cat/000.jpg", "broken");
  const auto set = open(options, Split::kTrain, kWanted, 3);
  const Batch batch = set->gather(std::vector<int64_t>{0, 1});
  EXPECT_TRUE(batch.inputs[0][0].equal(batch.inputs[0][1]));
}

TEST(ImagesDataset, DoesNotCountABrokenTestFile) {
  const Pictures folder;
  folder.write("val/dog/999.png", "broken");
  const Batch batch = open(folder.options(), Split::kTest, kWanted, 3)->gather(std::vector<int64_t>{3, 4});
  EXPECT_EQ(batch.target[0].item<int64_t>(), 1);
  EXPECT_EQ(batch.target[1].item<int64_t>(), kNotCounted);
}

TEST(ImagesDataset, StopsWhereNothingIsWhole) {
  PictureFolder folder;
  folder.write("train/cat/1.jpg", "broken");
  folder.write("train/dog/1.jpg", "too");
  DataOptions options;
  options.name = "images";
  options.dir = folder.path.string();
  options.on_bad_file = "skip";
  EXPECT_THAT(open_error(options), HasSubstr("2 files in a row are broken"));
}

TEST(ImagesDataset, LimitTakesSamplesOfAllClasses) {
  const Pictures folder;
  DataOptions options = folder.options();
  options.limit = 4;
  const auto set = open(options, Split::kTrain, kWanted, 3);
  EXPECT_EQ(set->size(), 4);
  EXPECT_TRUE(set->gather(std::vector<int64_t>{0, 1, 2, 3}).target.equal(torch::tensor({0, 0, 1, 1})));
}

TEST(ImagesDataset, ReadsArchivesAsItReadsFolders) {
  const Pictures folder;
  PictureFolder packed;
  for (const char* split : {"train", "val"}) {
    std::string tar;
    for (const auto& file : std::filesystem::recursive_directory_iterator(folder.path / split))
      if (file.is_regular_file())
        tar += tar_entry(file.path().lexically_relative(folder.path).string(), read_file(file.path()));
    packed.write(std::string(split) + ".tar", tar + kTarEnd);
  }
  DataOptions options = folder.options();
  const auto whole = open(options, Split::kTrain, kWanted, 3);
  options.dir = packed.path.string();
  const auto from_tar = open(options, Split::kTrain, kWanted, 3);
  ASSERT_EQ(from_tar->size(), whole->size());
  EXPECT_EQ(from_tar->gather(std::vector<int64_t>{0, 7}).target[1].item<int64_t>(), 1);
  EXPECT_EQ(from_tar->class_names(), whole->class_names());
}

TEST(ImagesDataset, MustFitTheModel) {
  const Pictures folder;
  EXPECT_THAT(open_error(folder.options(), Split::kTrain, {SampleKind::kImage, {3, 16, 16}, 10}),
              AllOf(HasSubstr("2 classes"), HasSubstr("model.classes")));
  EXPECT_THAT(open_error(folder.options(), Split::kTrain, {SampleKind::kVector, {784}, 2}),
              HasSubstr("Change model.name or data.name"));
  EXPECT_EQ(open_error(folder.options(), Split::kTrain, {SampleKind::kImage, {1, 28, 28}, 2}), "no error");
}

TEST(ImagesDataset, NeedsTheSameClassesInBothSets) {
  const Pictures folder;
  folder.write("val/eel/1.jpg", "x");
  EXPECT_THAT(open_error(folder.options(), Split::kTest), HasSubstr("Only in the test set: eel"));
}

}  // namespace
}  // namespace yoke::data
