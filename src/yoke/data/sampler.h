// Assigns samples to batches: one order per epoch, divided into global batches, each divided into shards.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "yoke/data/options.h"

namespace yoke::data {

// Start of the next batch, in samples over all shards: independent of the batch size and the number of
// shards. Part of the checkpoint.
struct Position {
  int64_t epoch = 0;
  int64_t sample = 0;  // in the epoch's order
  bool operator==(const Position&) const = default;
};

struct Shard {
  int64_t rank = 0;
  int64_t size = 1;
  int64_t global_batch = 0;  // samples; 0: batch_size x size
};

// A global batch holds the next G = shard.global_batch samples of the epoch's order, and each shard
// takes a contiguous part: concatenated, all shards are the global batch, however many there are. The smaller
// last batch (drop_last = false) is split as evenly as possible; if it has fewer samples than shards, several
// take the same sample, each with a part of its weight. Shards may be unequal and may change between batches.
// Thread-safe.
class Sampler {
 public:
  // Throws ConfigError if an epoch would have no batch.
  Sampler(int64_t samples, const DataOptions& options, uint64_t seed, Shard shard = {});

  int64_t batches_per_epoch() const { return batches_from(0); }
  // Remaining batches of an epoch.
  int64_t batches_from(int64_t sample) const;
  // The position `batches` batches later; a position without a batch of its own (the end of an epoch, or a
  // rest omitted by drop_last) is the start of the next epoch. Throws ConfigError for a position outside the
  // data set.
  Position after(Position from, int64_t batches) const;

  // This shard's samples of the batch at a position returned by after().
  std::vector<int64_t> indices_at(Position position) const;
  // The same, with batches counted from the start of the first epoch.
  std::vector<int64_t> indices(int64_t batch) const { return indices_at(after({}, batch)); }

  // Parts in proportion to `shares`, one per shard; each above 0 gets at least one sample. A shard with 0
  // gets samples of others, with weight 0. Empty: equal parts.
  void set_shares(std::vector<double> shares);
  // Size of the global batch, and weight of a shard's mean in it: its samples x shards / samples.
  int64_t global_samples_at(Position position) const;
  double weight_at(Position position) const;

 private:
  struct Part {
    int64_t first = 0, last = 0;
    double weight = 1;
  };
  // Among the shards that have a share.
  struct Place {
    int64_t part = -1;  // -1: this one has none
    int64_t parts = 0;
    std::vector<double> shares{};  // empty: equal
  };
  Place place() const;
  Part part(Position position) const;

  using Order = std::shared_ptr<const std::vector<int64_t>>;
  Order order(int64_t epoch) const;

  int64_t samples_;
  int64_t global_batch_;
  bool drop_last_;
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
