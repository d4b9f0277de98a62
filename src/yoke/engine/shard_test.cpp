#include "yoke/engine/shard.h"

#include <gtest/gtest.h>
#include <torch/data/dataloader.h>
#include <torch/data/datasets/map.h>
#include <torch/data/samplers/random.h>
#include <torch/data/samplers/sequential.h>
#include <torch/data/transforms/stack.h>

#include <map>
#include <set>

namespace yoke {
namespace {

struct Numbers : torch::data::datasets::Dataset<Numbers> {
  explicit Numbers(int64_t n) : count(n) {}
  torch::data::Example<> get(size_t i) override {
    auto number = static_cast<int64_t>(i);
    return {torch::full({2}, number, torch::kInt64), torch::tensor(number, torch::kInt64)};
  }
  std::optional<size_t> size() const override { return static_cast<size_t>(count); }
  int64_t count;
};

auto random_loader(int64_t count, size_t batch) {
  return torch::data::make_data_loader<torch::data::samplers::RandomSampler>(
      Numbers(count).map(torch::data::transforms::Stack<>()), batch);
}

std::vector<int64_t> numbers(const torch::Tensor& tensor) {
  torch::Tensor flat = tensor.contiguous();
  return {flat.const_data_ptr<int64_t>(), flat.const_data_ptr<int64_t>() + flat.numel()};
}

TEST(Shard, EverySampleComesOnceInTheSameNumberOfBatches) {
  for (int64_t ranks : {1, 2, 3})
    for (int64_t count : {16, 17, 22, 25}) {
      std::map<int64_t, int> times;
      std::vector<size_t> batches;
      for (int64_t rank = 0; rank < ranks; ++rank) {
        auto loader = random_loader(count, 8);
        torch::manual_seed(static_cast<uint64_t>(rank));  // ranks draw differently; the order must not
        ShardedLoader sharded(*loader, {rank, ranks}, 7);
        torch::Tensor drawn = torch::rand({1});
        torch::manual_seed(static_cast<uint64_t>(rank));
        size_t own = 0;
        for (auto& batch : sharded) {
          ++own;
          EXPECT_TRUE(batch.data.select(1, 0).equal(batch.target));
          for (int64_t number : numbers(batch.target)) ++times[number];
        }
        EXPECT_TRUE(torch::rand({1}).equal(drawn));  // the generator is as it was
        EXPECT_EQ(sharded.epoch(), 1);
        batches.push_back(own);
      }
      EXPECT_EQ(std::set<size_t>(batches.begin(), batches.end()).size(), 1u) << count << " on " << ranks;
      EXPECT_EQ(static_cast<int64_t>(times.size()), count);
      for (const auto& [number, n] : times) EXPECT_EQ(n, 1) << number;
    }
}

// Batches of rank 0 of 2, over two epochs; where `stop` says so, a new loader takes the position over.
template <class MakeSharded>
std::vector<std::vector<int64_t>> two_epochs(const MakeSharded& make, size_t stop) {
  std::vector<std::vector<int64_t>> all;
  nlohmann::json position;
  for (bool again : {false, true}) {
    auto [loader, sharded] = make();
    if (again && position.is_null()) break;
    if (again) sharded.restore(nlohmann::json::parse(position.dump()));
    bool left = false;
    while (sharded.epoch() < 2 && !left)
      for (auto& batch : sharded) {
        all.push_back(numbers(batch.target));
        if (!again && all.size() == stop) {
          position = sharded.state();
          left = true;
          break;
        }
      }
  }
  return all;
}

TEST(Shard, APositionResumesWithTheNextBatch) {
  auto plain = [] {
    auto loader = random_loader(21, 8);
    ShardedLoader sharded(*loader, {0, 2}, 7);
    return std::pair(std::move(loader), std::move(sharded));
  };
  auto sampled = [] {
    DistributedSampler sampler(21, {0, 2}, {.seed = 3});
    auto loader =
        torch::data::make_data_loader(Numbers(21).map(torch::data::transforms::Stack<>()), sampler, 4);
    auto sharded = shard(loader, sampler);
    return std::pair(std::move(loader), std::move(sharded));
  };
  const auto whole = two_epochs(plain, 1000), whole_sampled = two_epochs(sampled, 1000);
  EXPECT_EQ(whole.size(), 6u);
  EXPECT_NE(whole[0], whole[3]);  // epochs have orders of their own
  for (size_t stop = 1; stop <= 6; ++stop) {
    EXPECT_EQ(two_epochs(plain, stop), whole) << stop;
    EXPECT_EQ(two_epochs(sampled, stop), whole_sampled) << stop;
  }
}

TEST(Shard, ListsOfSamplesAndPlainTensorsHaveRows) {
  std::vector<int> list = {1, 2, 3, 4};
  EXPECT_EQ(BatchRows<std::vector<int>>::part(list, 1, 3), (std::vector<int>{2, 3}));
  EXPECT_EQ(BatchRows<std::vector<int>>::join(list, {5}).size(), 5u);
  EXPECT_EQ(BatchRows<torch::Tensor>::join(torch::ones({2, 3}), torch::ones({1, 3})).size(0), 3);
}

}  // namespace
}  // namespace yoke
