// Batches of consecutive epochs, prefetched on worker threads.
//
// One global order per epoch from the seed, independent of the number of ranks: rank r of n takes its part of
// every global batch. Each sample exactly once per epoch (except for a dropped last batch), even if batch
// size and number of ranks change in between: the position counts samples. One thread calls it.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "yoke/data/batch.h"
#include "yoke/data/dataset.h"
#include "yoke/data/sampler.h"

namespace yoke::data {

class Loader {
 public:
  // `dataset` must outlive the loader. Throws ConfigError if the data set cannot fill one batch (sampler.h).
  Loader(const Dataset& dataset, const DataOptions& options, uint64_t seed, Shard shard = {});
  ~Loader();
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  // A loader with the same data, options, seed and position, for another shard.
  std::unique_ptr<Loader> with_shard(Shard shard) const;

  int64_t batches_per_epoch() const;
  // Batches before the position, each epoch counted as batches_per_epoch() at the current size.
  int64_t batches_done() const;
  // The next batch, across the end of an epoch. Rethrows errors of a worker; the position then stays, and so
  // does the error until seek().
  Batch next();
  // The inputs of the batch that next() will return; empty if it is not ready, or is an error.
  std::vector<torch::Tensor> peek();
  // Position of the next batch.
  Position position() const;
  // The position `batches` batches after `from`.
  Position after(Position from, int64_t batches) const;
  // Resumes at `position`; prefetched batches are dropped. Throws ConfigError if the data set has no such
  // sample.
  void seek(Position position);
  // From the next batch on, like Sampler::set_shares. All ranks of a job call it at the same position.
  void set_shares(const std::vector<double>& shares);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace yoke::data
