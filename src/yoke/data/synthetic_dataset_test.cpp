#include "yoke/data/synthetic_dataset.h"

#include <gtest/gtest.h>

#include <numeric>

#include "yoke/base/error.h"

namespace yoke::data {
namespace {

const std::vector<SampleSpec> kKinds{
    {SampleKind::kImage, {3, 20, 30}, 1000}, {SampleKind::kVector, {2000}, 10},
    {SampleKind::kTokens, {16}, 50257},      {SampleKind::kSparse, {1 << 20}, 2},
    {SampleKind::kVideo, {5, 40, 6}, 100},
};

std::vector<int64_t> range(int64_t count) {
  std::vector<int64_t> indices(static_cast<size_t>(count));
  std::iota(indices.begin(), indices.end(), 0);
  return indices;
}

Batch sample(const SampleSpec& spec, int64_t index, Split split = Split::kTrain, uint64_t seed = 1) {
  const std::vector<int64_t> indices{index};
  return open({}, split, spec, seed)->gather(indices);
}

TEST(SyntheticDataset, HasAnEighthAsManySamplesToTest) {
  DataOptions o;
  for (const auto& [samples, test] : {std::pair{1024, 128}, {8, 1}, {1, 1}}) {
    o.samples = samples;
    EXPECT_EQ(open(o, Split::kTrain, kKinds[0], 1)->size(), samples);
    EXPECT_EQ(open(o, Split::kTest, kKinds[0], 1)->size(), test);
  }
  o.samples = 100;
  o.limit = 10;
  EXPECT_EQ(open(o, Split::kTrain, kKinds[0], 1)->size(), 10);
}

TEST(SyntheticDataset, MakesEachSampleFromSeedSplitAndIndexAlone) {
  for (const SampleSpec& spec : kKinds) {
    const Batch lone = sample(spec, 7);
    const auto data = open({}, Split::kTrain, spec, 1);
    EXPECT_EQ(data->spec(), spec);
    const std::vector<int64_t> indices{3, 7};
    const Batch pair = data->gather(indices);
    if (spec.kind == SampleKind::kSparse) {
      const int64_t elements = lone.inputs[0].numel();
      EXPECT_TRUE(torch::equal(pair.inputs[0].slice(0, elements), lone.inputs[0]));
      EXPECT_EQ(pair.inputs[2][1].item<int64_t>(), elements);
    } else {
      for (size_t i = 0; i < lone.inputs.size(); ++i)
        EXPECT_TRUE(torch::equal(pair.inputs[i][1], lone.inputs[i][0]));
    }
    EXPECT_TRUE(torch::equal(pair.target[1], lone.target[0])) << to_string(spec);
    EXPECT_FALSE(torch::equal(sample(spec, 8).inputs[0], lone.inputs[0])) << to_string(spec);
    EXPECT_FALSE(torch::equal(sample(spec, 7, Split::kTest).inputs[0], lone.inputs[0])) << to_string(spec);
    EXPECT_FALSE(torch::equal(sample(spec, 7, Split::kTrain, 2).inputs[0], lone.inputs[0]))
        << to_string(spec);
  }
}

TEST(SyntheticDataset, GivesShapesAsTheSampleSpecSays) {
  const std::vector<int64_t> indices{0, 1, 2};
  auto batch_of = [&](size_t kind) { return open({}, Split::kTrain, kKinds[kind], 1)->gather(indices); };
  EXPECT_EQ(batch_of(0).inputs[0].sizes(), (torch::IntArrayRef{3, 3, 20, 30}));
  EXPECT_EQ(batch_of(1).inputs[0].sizes(), (torch::IntArrayRef{3, 2000}));
  EXPECT_EQ(batch_of(2).inputs[0].sizes(), (torch::IntArrayRef{3, 16}));
  EXPECT_EQ(batch_of(3).inputs[2].sizes(), (torch::IntArrayRef{3}));
  EXPECT_EQ(batch_of(4).inputs[0].sizes(), (torch::IntArrayRef{3, 5, 40}));
  EXPECT_EQ(batch_of(4).inputs[1].sizes(), (torch::IntArrayRef{3, 6}));
  for (size_t kind = 0; kind < kKinds.size(); ++kind) EXPECT_EQ(batch_of(kind).target.size(0), 3);
}

TEST(SyntheticDataset, StaysInsideClassesVocabularyAndFeatures) {
  for (int64_t few : {1, 2, 3, 17}) {
    for (const SampleKind kind : {SampleKind::kImage, SampleKind::kTokens}) {
      const SampleSpec spec{
          kind, kind == SampleKind::kImage ? std::vector<int64_t>{1, 1, 1} : std::vector<int64_t>{9}, few};
      const Batch batch = open({}, Split::kTrain, spec, 1)->gather(range(200));
      EXPECT_GE(batch.target.min().item<int64_t>(), 0);
      EXPECT_LT(batch.target.max().item<int64_t>(), few);
    }
    const Batch sparse = open({}, Split::kTrain, {SampleKind::kSparse, {few}, 2}, 1)->gather(range(50));
    EXPECT_LT(sparse.inputs[0].max().item<int64_t>(), few);
  }
  const Batch video = open({}, Split::kTrain, {SampleKind::kVideo, {2, 3, 4}, 2}, 1)->gather(range(50));
  EXPECT_EQ(video.target.min().item<int64_t>(), 1);
  EXPECT_EQ(video.target.max().item<int64_t>(), 1);
}

TEST(SyntheticDataset, ShowsTheClassInTheImage) {
  // The nearest mean of the training images tells the class of test images.
  const SampleSpec spec{SampleKind::kImage, {1, 28, 28}, 10};
  const Batch train = open({}, Split::kTrain, spec, 1)->gather(range(500));
  const Batch test = open({}, Split::kTest, spec, 1)->gather(range(100));
  std::vector<torch::Tensor> means;
  for (int64_t c = 0; c < 10; ++c)
    means.push_back(train.inputs[0].index({train.target == c}).mean(0).flatten());
  const torch::Tensor distance = torch::cdist(test.inputs[0].flatten(1), torch::stack(means));
  EXPECT_TRUE(torch::equal(distance.argmin(1), test.target));
}

TEST(SyntheticDataset, FollowsMostTokensByTheirSuccessor) {
  const Batch batch = open({}, Split::kTrain, {SampleKind::kTokens, {64}, 20}, 1)->gather(range(100));
  const torch::Tensor pairs = torch::zeros({20, 20});
  pairs.view({-1}).index_add_(0, (batch.inputs[0] * 20 + batch.target).flatten(), torch::ones({6400}));
  const float share = (std::get<0>(pairs.max(1)).sum() / pairs.sum()).item<float>();
  EXPECT_NEAR(share, 0.9, 0.03);
  EXPECT_TRUE(torch::equal(batch.inputs[0].slice(1, 1), batch.target.slice(1, 0, 63)));
}

TEST(SyntheticDataset, TakesSeqLenForTokens) {
  DataOptions o;
  o.seq_len = 5;
  EXPECT_EQ(open(o, Split::kTrain, {SampleKind::kTokens, {8}, 20}, 1)->spec().shape[0], 5);
  o.seq_len = 9;
  EXPECT_THROW(open(o, Split::kTrain, {SampleKind::kTokens, {8}, 20}, 1), ConfigError);
}

TEST(SyntheticDataset, HasBothLabelsOfSparseSamples) {
  const Batch batch = open({}, Split::kTrain, {SampleKind::kSparse, {1000}, 2}, 1)->gather(range(1000));
  const float positive = batch.target.mean().item<float>();
  EXPECT_GT(positive, 0.1);
  EXPECT_LT(positive, 0.9);
}

TEST(SyntheticDataset, DrawsAShareOfTheTrainingLabelsAtRandom) {
  for (const SampleSpec& spec :
       {SampleSpec{SampleKind::kVector, {32}, 10}, {SampleKind::kSparse, {1000}, 2}}) {
    DataOptions noisy;
    noisy.noise = 0.5;
    auto both = [&](Split split) {
      return std::pair(open({}, split, spec, 1)->gather(range(100)),
                       open(noisy, split, spec, 1)->gather(range(100)));
    };
    const auto [test, noisy_test] = both(Split::kTest);
    EXPECT_TRUE(torch::equal(test.target, noisy_test.target));
    const auto [train, noisy_train] = both(Split::kTrain);
    EXPECT_TRUE(torch::equal(train.inputs[0], noisy_train.inputs[0]));
    // Of the labels drawn, one in as many as there are classes is the true one.
    noisy.samples = 4000;
    const torch::Tensor truth = [&] {
      DataOptions clean = noisy;
      clean.noise = 0;
      return open(clean, Split::kTrain, spec, 1)->gather(range(4000)).target;
    }();
    const torch::Tensor drawn = open(noisy, Split::kTrain, spec, 1)->gather(range(4000)).target;
    const double classes = spec.kind == SampleKind::kSparse ? 2 : 10;
    EXPECT_NEAR((drawn != truth).to(torch::kFloat32).mean().item<float>(), 0.5 * (1 - 1 / classes), 0.03);
  }
}

TEST(SyntheticDataset, BeginsDescriptionsWithWordZeroAndTellsTheScene) {
  const SampleSpec spec{SampleKind::kVideo, {3, 20, 4}, 50};
  const Batch batch = open({}, Split::kTrain, spec, 1)->gather(range(60));
  EXPECT_TRUE((batch.inputs[1].select(1, 0) == 0).all().item<bool>());
  EXPECT_TRUE(torch::equal(batch.inputs[1].slice(1, 1), batch.target.slice(1, 0, 3)));
  // Videos that look alike have the same words.
  const torch::Tensor mean = batch.inputs[0].mean(1);
  const torch::Tensor alike = torch::cdist(mean, mean) < 3.0;
  const torch::Tensor same = (batch.target.unsqueeze(0) == batch.target.unsqueeze(1)).all(2);
  EXPECT_TRUE(torch::equal(alike, same));
}

}  // namespace
}  // namespace yoke::data
