// Fashion-MNIST, MNIST and CIFAR, from small files written here and from the real ones where they are
// installed.
#include "yoke/data/image_dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <cstdio>
#include <filesystem>
#include <fstream>

#include "yoke/base/error.h"

namespace yoke::data {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

fs::path fresh_folder(const std::string& name) {
  const fs::path folder = fs::path(::testing::TempDir()) / ("yoke_images_" + name);
  fs::remove_all(folder);
  fs::create_directories(folder);
  return folder;
}

void write(const fs::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

void write_gzip(const fs::path& path, const std::string& bytes) {
  gzFile file = gzopen(path.c_str(), "wb");
  gzwrite(file, bytes.data(), static_cast<unsigned>(bytes.size()));
  gzclose(file);
}

std::string big_endian(int value) {
  return {0, 0, 0, static_cast<char>(value)};
}

// `count` images of 2x3 with pixels 0, 1, 2, … and labels 0, 1, 2, ….
std::string idx_images(int count) {
  std::string bytes{0, 0, 8, 3};
  for (int size : {count, 2, 3}) bytes.append(big_endian(size));
  for (int i = 0; i < 6 * count; ++i) bytes.push_back(static_cast<char>(i));
  return bytes;
}
std::string idx_labels(int count) {
  std::string bytes{0, 0, 8, 1};
  bytes.append(big_endian(count));
  for (int i = 0; i < count; ++i) bytes.push_back(static_cast<char>(i));
  return bytes;
}

fs::path mnist_folder(const std::string& name) {
  const fs::path folder = fresh_folder(name);
  write(folder / "train-images-idx3-ubyte", idx_images(5));
  write(folder / "train-labels-idx1-ubyte", idx_labels(5));
  write_gzip(folder / "t10k-images-idx3-ubyte.gz", idx_images(2));
  write_gzip(folder / "t10k-labels-idx1-ubyte.gz", idx_labels(2));
  return folder;
}

DataOptions options(const std::string& name, const fs::path& dir) {
  DataOptions o;
  o.name = name;
  o.dir = dir.string();
  return o;
}

const SampleSpec kSmall{SampleKind::kImage, {1, 2, 3}, 10};

std::string error_of(const DataOptions& o, const SampleSpec& wanted, Split split = Split::kTrain) {
  try {
    open(o, split, wanted, 1);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "no error";
}

TEST(IdxDataset, GivesNormalisedImagesAndLabels) {
  const auto data = open(options("mnist", mnist_folder("good")), Split::kTrain, kSmall, 1);
  EXPECT_EQ(data->size(), 5);
  EXPECT_EQ(data->spec(), kSmall);
  const std::vector<int64_t> indices{3, 0};
  const Batch batch = data->gather(indices);
  EXPECT_EQ(batch.samples, 2);
  EXPECT_EQ(batch.inputs[0].sizes(), (torch::IntArrayRef{2, 1, 2, 3}));
  EXPECT_EQ(batch.target[0].item<int64_t>(), 3);
  EXPECT_EQ(batch.target[1].item<int64_t>(), 0);
  EXPECT_EQ(batch.inputs[0][0][0][1][2].item<float>(), (23 / 255.0f - 0.1307f) / 0.3081f);
}

TEST(IdxDataset, ReadsGzipAndUsesFashionsOwnConstants) {
  const auto data = open(options("fashion_mnist", mnist_folder("gz")), Split::kTest, kSmall, 1);
  EXPECT_EQ(data->size(), 2);
  const std::vector<int64_t> indices{1};
  EXPECT_EQ(data->gather(indices).inputs[0][0][0][0][0].item<float>(), (6 / 255.0f - 0.2860f) / 0.3530f);
}

TEST(IdxDataset, FindsTorchvisionsFolder) {
  const fs::path root = fresh_folder("root");
  fs::create_directories(root / "MNIST");
  fs::rename(mnist_folder("torchvision"), root / "MNIST" / "raw");
  EXPECT_EQ(open(options("mnist", root), Split::kTrain, kSmall, 1)->size(), 5);
}

TEST(IdxDataset, FlattensForModelsOfVectors) {
  const SampleSpec wanted{SampleKind::kVector, {6}, 10};
  const auto data = open(options("mnist", mnist_folder("flat")), Split::kTrain, wanted, 1);
  EXPECT_EQ(data->spec(), wanted);
  const std::vector<int64_t> indices{0, 1, 2};
  EXPECT_EQ(data->gather(indices).inputs[0].sizes(), (torch::IntArrayRef{3, 6}));
}

TEST(IdxDataset, TakesTheFirstSamplesUnderALimit) {
  DataOptions o = options("mnist", mnist_folder("limit"));
  o.limit = 3;
  EXPECT_EQ(open(o, Split::kTrain, kSmall, 1)->size(), 3);
  EXPECT_EQ(open(o, Split::kTest, kSmall, 1)->size(), 2);
}

TEST(IdxDataset, SaysWhereItLookedForMissingFiles) {
  const fs::path folder = fresh_folder("missing");
  EXPECT_THAT(
      error_of(options("fashion_mnist", folder), kSmall),
      AllOf(HasSubstr((folder / "train-images-idx3-ubyte.gz").string()), HasSubstr("FashionMNIST/raw"),
            HasSubstr("dataset-fashion-mnist"), HasSubstr("data.dir")));
  write(folder / "train-images-idx3-ubyte", idx_images(5));
  EXPECT_THAT(error_of(options("fashion_mnist", folder), kSmall), HasSubstr("train-labels-idx1-ubyte"));
  EXPECT_THAT(error_of(options("mnist", "/nowhere"), kSmall), HasSubstr("/nowhere/train-images-idx3-ubyte"));
}

TEST(IdxDataset, RefusesDamagedFiles) {
  const fs::path folder = mnist_folder("damaged");
  const DataOptions o = options("mnist", folder);
  write(folder / "train-labels-idx1-ubyte", idx_labels(4));
  EXPECT_THAT(error_of(o, kSmall),
              AllOf(HasSubstr("train-images-idx3-ubyte, byte 4: 5 images"), HasSubstr("4 labels")));
  write(folder / "train-labels-idx1-ubyte", idx_labels(11));
  EXPECT_THAT(error_of(o, kSmall),
              HasSubstr("train-labels-idx1-ubyte, byte 18: expected a label 0..9, found 10"));
  write(folder / "train-images-idx3-ubyte", idx_images(5).substr(0, 20));
  EXPECT_THAT(error_of(o, kSmall), HasSubstr("declares 30 values, but the file has 4"));
}

TEST(IdxDataset, NamesDataAndModelThatDoNotFit) {
  const DataOptions o = options("mnist", mnist_folder("fit"));
  EXPECT_THAT(error_of(o, {SampleKind::kImage, {1, 32, 32}, 10}),
              AllOf(HasSubstr("image 1x2x3, 10 classes"), HasSubstr("image 1x32x32, 10 classes"),
                    HasSubstr("model.image_size")));
  EXPECT_THAT(error_of(o, {SampleKind::kImage, {1, 2, 3}, 1000}), HasSubstr("Change model.classes."));
  EXPECT_THAT(error_of(o, {SampleKind::kImage, {3, 2, 3}, 10}), HasSubstr("Change model.name or data.name."));
  EXPECT_THAT(error_of(o, {SampleKind::kVector, {784}, 10}),
              AllOf(HasSubstr("vector of 6, 10 classes"), HasSubstr("Change model.sizes.")));
  EXPECT_THAT(error_of(o, {SampleKind::kTokens, {8}, 100}),
              AllOf(HasSubstr("8 tokens"), HasSubstr("Change model.name or data.name.")));
}

TEST(IdxDataset, ReadsTheRealFashionMnist) {
  const fs::path folder = "/usr/share/datasets/fashion-mnist";
  if (!fs::exists(folder))
    GTEST_SKIP() << folder << " is not there: install the package dataset-fashion-mnist";
  DataOptions o;
  o.name = "fashion_mnist";
  const SampleSpec wanted{SampleKind::kImage, {1, 28, 28}, 10};
  const auto train = open(o, Split::kTrain, wanted, 1);
  EXPECT_EQ(train->size(), 60000);
  std::vector<int64_t> indices(4000);
  for (size_t i = 0; i < indices.size(); ++i) indices[i] = static_cast<int64_t>(i) * 15;
  const Batch batch = train->gather(indices);
  EXPECT_EQ(batch.target[0].item<int64_t>(), 9);
  EXPECT_NEAR(batch.inputs[0].mean().item<float>(), 0, 0.02);
  EXPECT_NEAR(batch.inputs[0].std().item<float>(), 1, 0.02);
  EXPECT_EQ(open(o, Split::kTest, wanted, 1)->size(), 10000);
}

const SampleSpec kCifar{SampleKind::kImage, {3, 32, 32}, 10};

std::string cifar_record(char label, char red, char green, char blue) {
  std::string record(1, label);
  for (char plane : {red, green, blue}) record.append(1024, plane);
  return record;
}

fs::path cifar_folder(const std::string& name) {
  const fs::path folder = fresh_folder(name);
  for (char i = 1; i <= 5; ++i) {
    write(folder / ("data_batch_" + std::to_string(i) + ".bin"),
          cifar_record(i, 1, 2, 3) + cifar_record(0, i, 5, 6));
  }
  write(folder / "test_batch.bin", cifar_record(9, 0, 0, 0));
  return folder;
}

TEST(CifarDataset, JoinsItsFilesAndNormalisesEachChannel) {
  const auto data = open(options("cifar10", cifar_folder("cifar")), Split::kTrain, kCifar, 1);
  EXPECT_EQ(data->size(), 10);
  const std::vector<int64_t> indices{9, 4};
  const Batch batch = data->gather(indices);
  EXPECT_EQ(batch.target[0].item<int64_t>(), 0);
  EXPECT_EQ(batch.target[1].item<int64_t>(), 3);
  const torch::Tensor image = batch.inputs[0][0];
  EXPECT_EQ(image[0][31][31].item<float>(), (5 / 255.0f - 0.4914f) / 0.2470f);
  EXPECT_EQ(image[1][0][0].item<float>(), (5 / 255.0f - 0.4822f) / 0.2435f);
  EXPECT_EQ(image[2][31][31].item<float>(), (6 / 255.0f - 0.4465f) / 0.2616f);
  EXPECT_EQ(open(options("cifar10", cifar_folder("cifar")), Split::kTest, kCifar, 1)->size(), 1);
}

TEST(CifarDataset, NeedsAllFilesThatTheLimitReaches) {
  const fs::path folder = cifar_folder("cifar_limit");
  fs::remove(folder / "data_batch_3.bin");
  DataOptions o = options("cifar10", folder);
  o.limit = 4;
  EXPECT_EQ(open(o, Split::kTrain, kCifar, 1)->size(), 4);
  o.limit = 5;
  EXPECT_THAT(error_of(o, kCifar), HasSubstr("data_batch_3.bin"));
  write(folder / "data_batch_3.bin", "short");
  EXPECT_THAT(error_of(o, kCifar), HasSubstr("data_batch_3.bin, byte 0: 5 bytes are not whole"));
}

const SampleSpec kCifarFine{SampleKind::kImage, {3, 32, 32}, 100};

TEST(CifarDataset, OfAHundredClassesTrainsOnTheFineLabels) {
  const fs::path folder = fresh_folder("cifar100");
  fs::create_directories(folder / "cifar-100-binary");
  std::string names;
  for (int i = 0; i < 100; ++i) names += "name" + std::to_string(i) + "\n";
  write(folder / "cifar-100-binary/fine_label_names.txt", names);
  write(folder / "cifar-100-binary/train.bin",
        "\x13" + cifar_record(99, 1, 2, 3) + "\x04" + cifar_record(7, 4, 5, 6));
  write(folder / "cifar-100-binary/test.bin", "\x01" + cifar_record(42, 0, 0, 0));
  const auto data = open(options("cifar100", folder), Split::kTrain, kCifarFine, 1);
  EXPECT_EQ(data->size(), 2);
  const std::vector<int64_t> indices{1, 0};
  const Batch batch = data->gather(indices);
  EXPECT_EQ(batch.target[0].item<int64_t>(), 7);
  EXPECT_EQ(batch.target[1].item<int64_t>(), 99);
  EXPECT_EQ(batch.inputs[0][0][2][31][31].item<float>(), (6 / 255.0f - 0.4409f) / 0.2762f);
  EXPECT_EQ(data->class_names()[99], "name99");
  const fs::path direct = folder / "cifar-100-binary";
  EXPECT_EQ(open(options("cifar100", direct), Split::kTest, kCifarFine, 1)->size(), 1);
  write(direct / "fine_label_names.txt", "one\ntwo\n");
  EXPECT_TRUE(open(options("cifar100", direct), Split::kTest, kCifarFine, 1)->class_names().empty());
  EXPECT_THAT(error_of(options("cifar100", folder), kCifar), HasSubstr("100"));
}

TEST(Open, ListsTheDataSetsForAnUnknownName) {
  EXPECT_THAT(error_of(options("imagenet", ""), kSmall),
              AllOf(HasSubstr("'imagenet'"), HasSubstr("fashion_mnist, mnist, cifar10, cifar100")));
}

}  // namespace
}  // namespace yoke::data
