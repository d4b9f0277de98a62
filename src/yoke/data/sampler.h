// Which samples are in which batch: one order per epoch, cut into global batches, each cut into shards.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "yoke/data/options.h"

namespace yoke::data {

// The next batch to be handed out. Part of the checkpoint.
struct Position {
  int64_t epoch = 0;
  int64_t batch = 0;  // within the epoch
  bool operator==(const Position&) const = default;
};

struct Shard {
  int64_t rank = 0;
  int64_t size = 1;
};

// Global batch b of an epoch holds the order's samples b*G .. (b+1)*G-1, G = batch_size x shard.size, and a
// shard takes a contiguous part: all shards one behind the other are the global batch, however many there
// are. The smaller last batch (drop_last = false) is split as evenly as it goes. Shards may be unequal, and
// may change between batches. May be used from several threads.
class Sampler {
 public:
  // Throws ConfigError where an epoch would have no batch, or a shard nothing of the last one.
  Sampler(int64_t samples, const DataOptions& options, uint64_t seed, Shard shard = {});

  int64_t batches_per_epoch() const { return batches_; }
  // This shard's samples. Requires 0 <= position.batch < batches_per_epoch().
  std::vector<int64_t> indices(Position position) const;

  // Parts in proportion to `shares`, one for each shard, all above 0; each gets at least one sample. Empty:
  // equal ones.
  void set_shares(std::vector<double> shares);
  // Samples of the whole global batch, and what a shard's mean counts in it: its samples x shards / samples.
  int64_t global_samples(Position position) const;
  double weight(Position position) const;

 private:
  struct Part {
    int64_t first = 0, last = 0;
  };
  Part part(Position position) const;

  using Order = std::shared_ptr<const std::vector<int64_t>>;
  Order order(int64_t epoch) const;

  int64_t samples_;
  int64_t global_batch_;
  int64_t batches_;
  bool shuffle_;
  uint64_t seed_;
  Shard shard_;
  std::vector<double> shares_;  // guarded by mutex_

  struct Cached {
    int64_t epoch = -1;
    Order order;
  };
  mutable std::mutex mutex_;
  mutable Cached cache_[2];  // around the end of an epoch two are in use
};

}  // namespace yoke::data
