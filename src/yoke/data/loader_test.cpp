#include "yoke/data/loader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <latch>
#include <set>
#include <thread>

#include "yoke/base/error.h"

namespace yoke::data {
namespace {

using ::testing::HasSubstr;

// A batch's target is the indices it was made of.
class Echo : public Dataset {
 public:
  explicit Echo(int64_t size) : size_(size) {}
  int64_t size() const override { return size_; }
  SampleSpec spec() const override { return {SampleKind::kVector, {1}, 1}; }
  Batch gather(std::span<const int64_t> indices) const override {
    const auto count = static_cast<int64_t>(indices.size());
    Batch batch{{}, torch::empty({count}, torch::kInt64), count};
    std::copy(indices.begin(), indices.end(), batch.target.data_ptr<int64_t>());
    return batch;
  }

 private:
  int64_t size_;
};

class Faulty : public Echo {
 public:
  using Echo::Echo;
  Batch gather(std::span<const int64_t> indices) const override {
    for (int64_t i : indices) {
      if (i == 13) throw ConfigError("sample 13 is damaged");
    }
    return Echo::gather(indices);
  }
};

// gather() does not come back before the test says so.
class Slow : public Echo {
 public:
  using Echo::Echo;
  Batch gather(std::span<const int64_t> indices) const override {
    if (!entered.exchange(true)) inside.count_down();
    leave.wait();
    return Echo::gather(indices);
  }
  mutable std::atomic<bool> entered = false;
  mutable std::latch inside{1};
  mutable std::latch leave{1};
};

DataOptions options(int64_t workers, int64_t prefetch = 4) {
  DataOptions o;
  o.batch_size = 8;
  o.workers = workers;
  o.prefetch = prefetch;
  return o;
}

std::vector<int64_t> take(Loader& loader, int64_t batches) {
  std::vector<int64_t> all;
  for (int64_t b = 0; b < batches; ++b) {
    const Batch batch = loader.next();
    const auto* values = batch.target.data_ptr<int64_t>();
    all.insert(all.end(), values, values + batch.samples);
  }
  return all;
}

TEST(Loader, GivesEachSampleOnceAnEpoch) {
  const Echo data(96);
  Loader loader(data, options(2), 5);
  ASSERT_EQ(loader.batches_per_epoch(), 12);
  for (int epoch = 0; epoch < 3; ++epoch) {
    const std::vector<int64_t> all = take(loader, 12);
    EXPECT_EQ(std::set<int64_t>(all.begin(), all.end()).size(), 96u);
  }
}

TEST(Loader, GivesTheSameStreamForAnyNumberOfWorkers) {
  const Echo data(100);
  Loader none(data, options(0), 5);
  const std::vector<int64_t> expected = take(none, 60);
  for (int64_t workers : {1, 3}) {
    for (int64_t prefetch : {1, 2, 16}) {
      Loader loader(data, options(workers, prefetch), 5);
      EXPECT_EQ(take(loader, 60), expected) << workers << " workers, " << prefetch << " ahead";
    }
  }
}

TEST(Loader, GoesOnFromAPositionAsIfItHadNeverStopped) {
  const Echo data(100);
  for (int64_t workers : {0, 2}) {
    Loader loader(data, options(workers), 5);
    take(loader, 17);
    const Position stopped = loader.position();
    EXPECT_EQ(stopped, (Position{1, 40}));
    const std::vector<int64_t> expected = take(loader, 30);

    Loader resumed(data, options(workers), 5);
    resumed.seek(stopped);
    EXPECT_EQ(resumed.position(), stopped);
    EXPECT_EQ(take(resumed, 30), expected);

    loader.seek(stopped);  // and back, with batches prepared ahead
    EXPECT_EQ(take(loader, 30), expected);
  }
}

TEST(Loader, ResumesWithAnotherBatchSizeAtTheSameSample) {
  const Echo data(100);
  DataOptions small = options(2), large = options(2);
  small.drop_last = large.drop_last = false;
  small.batch_size = 3;
  large.batch_size = 30;
  Loader whole(data, small, 5), before(data, small, 5), after(data, large, 5);
  const std::vector<int64_t> expected = take(whole, 34 + 4);  // an epoch, and 12 samples of the next
  std::vector<int64_t> seen = take(before, 10);
  after.seek(before.position());
  EXPECT_EQ(after.batches_done(), 1);
  std::vector<int64_t> rest = take(after, 3);  // 30, 30, 10
  EXPECT_EQ(after.position(), (Position{1, 0}));
  EXPECT_EQ(after.batches_done(), 4);
  before.seek(after.position());
  const std::vector<int64_t> next = take(before, 4);
  seen.insert(seen.end(), rest.begin(), rest.end());
  seen.insert(seen.end(), next.begin(), next.end());
  EXPECT_EQ(seen, expected);
}

TEST(Loader, CountsItsPositionThroughEpochs) {
  const Echo data(16);
  Loader loader(data, options(1), 5);
  EXPECT_EQ(loader.position(), (Position{0, 0}));
  take(loader, 2);
  EXPECT_EQ(loader.position(), (Position{1, 0}));
  take(loader, 3);
  EXPECT_EQ(loader.position(), (Position{2, 8}));
}

TEST(Loader, RefusesAPositionThatAnEpochDoesNotHave) {
  const Echo data(16);
  Loader loader(data, options(1), 5);
  for (Position position : {Position{0, 17}, Position{-1, 0}, Position{0, -1}, Position{INT64_MAX, 1}}) {
    EXPECT_THROW(loader.seek(position), ConfigError);
  }
  EXPECT_EQ(loader.position(), (Position{0, 0}));
}

TEST(Loader, HandsErrorsOfWorkersToNext) {
  const Faulty data(32);
  DataOptions ordered = options(3);
  ordered.shuffle = false;
  for (int64_t workers : {0, 3}) {
    ordered.workers = workers;
    Loader loader(data, ordered, 5);
    EXPECT_EQ(take(loader, 1).size(), 8u);
    for (int attempt = 0; attempt < 2; ++attempt) {
      try {
        loader.next();
        ADD_FAILURE() << "sample 13 is in this batch";
      } catch (const ConfigError& error) {
        EXPECT_THAT(error.what(), HasSubstr("sample 13 is damaged"));
      }
      EXPECT_EQ(loader.position(), (Position{0, 8}));
    }
    loader.seek({0, 16});
    EXPECT_EQ(take(loader, 1)[0], 16);
  }
}

TEST(Loader, EndsWhileItsThreadsAreBusyOrWaiting) {
  const Echo quick(64);
  for (int round = 0; round < 20; ++round) {
    Loader loader(quick, options(3), 5);
    take(loader, round % 3);
  }
  const Slow slow(64);
  auto loader = std::make_unique<Loader>(slow, options(3), 5);
  slow.inside.wait();
  std::jthread end([&] { loader.reset(); });
  slow.leave.count_down();
  end.join();
}

TEST(Loader, PreparesNoMoreThanItMay) {
  struct Counting : Echo {
    using Echo::Echo;
    Batch gather(std::span<const int64_t> indices) const override {
      ++made;
      return Echo::gather(indices);
    }
    mutable std::atomic<int> made = 0;
  };
  const Counting data(800);
  {
    Loader loader(data, options(2, 3), 5);
    take(loader, 4);
    EXPECT_LE(data.made, 7);
  }
  EXPECT_LE(data.made, 7);
}

TEST(Loader, CarriesTheSamplersRefusal) {
  const Echo data(4);
  EXPECT_THROW(Loader(data, options(2), 5), ConfigError);
}

// A batch that was looked at is returned next, wherever it is made.
TEST(Loader, PeekShowsTheInputsOfTheNextBatch) {
  class Inputs : public Echo {
   public:
    using Echo::Echo;
    Batch gather(std::span<const int64_t> indices) const override {
      Batch batch = Echo::gather(indices);
      batch.inputs = {batch.target.clone()};
      return batch;
    }
  };
  const Inputs dataset(40);
  for (int64_t workers : {0, 2}) {
    Loader loader(dataset, options(workers), 3), plain(dataset, options(workers), 3);
    for (int i = 0; i < 12; ++i) {
      const Position before = loader.position();
      const std::vector<torch::Tensor> seen = loader.peek();
      EXPECT_EQ(loader.position(), before);
      const Batch batch = loader.next();
      EXPECT_TRUE(batch.target.equal(plain.next().target));
      EXPECT_TRUE(workers > 0 || !seen.empty());
      if (!seen.empty()) {
        EXPECT_TRUE(seen[0].equal(batch.target));
      }
      if (i == 5) {
        loader.peek();
        loader.seek({1, 16});
        plain.seek({1, 16});
      }
    }
  }
}

}  // namespace
}  // namespace yoke::data
