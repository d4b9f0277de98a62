// Batches of one epoch after another, prepared ahead on threads of their own.
//
// One global order per epoch from the seed, independent of the number of ranks: rank r of n takes its part of
// every global batch. Each sample exactly once per epoch (but for a dropped last batch). The position is two
// numbers, so a run goes on exactly where it stopped.
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
  // The next batch, over the end of an epoch into the next. Rethrows what went wrong in a worker; the
  // position then stays, and so does the error until seek().
  Batch next();
  // Where next() will read.
  Position position() const;
  // Goes on from there; what was prepared ahead is dropped. Throws ConfigError where an epoch has no such
  // batch.
  void seek(Position position);
  // From the next batch on, as Sampler::set_shares. All ranks of a job at the same position.
  void set_shares(const std::vector<double>& shares);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace yoke::data
