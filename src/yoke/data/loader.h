// Batches of one epoch after another, prepared ahead on threads of their own.
//
// One global order per epoch from the seed, independent of the number of ranks: rank r of n takes its part of
// every global batch. Each sample exactly once per epoch (but for a dropped last batch), also where batch
// size and number of ranks change in between: the position counts samples.
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
  // `dataset` must outlive the loader. Throws ConfigError when the data set cannot fill one batch
  // (sampler.h).
  Loader(const Dataset& dataset, const DataOptions& options, uint64_t seed, Shard shard = {});
  ~Loader();
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  int64_t batches_per_epoch() const;
  // Batches before the position, each epoch's counted as batches_per_epoch() of the size there is now.
  int64_t batches_done() const;
  // The next batch, over the end of an epoch into the next. Rethrows what went wrong in a worker; the
  // position then stays, and so does the error until seek().
  Batch next();
  // Where next() will read.
  Position position() const;
  // Where next() would read after so many batches from `from` on.
  Position after(Position from, int64_t batches) const;
  // Resumes from there; what was prepared ahead is dropped. Throws ConfigError where the data set has no such
  // sample.
  void seek(Position position);
  // From the next batch on, as Sampler::set_shares. All ranks of a job at the same position.
  void set_shares(const std::vector<double>& shares);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace yoke::data
