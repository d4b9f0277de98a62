// Batches of one epoch after another, prepared ahead on threads of their own.
//
// One global order per epoch from the seed, independent of the number of ranks: rank r of n takes its part of
// every global batch. Each sample exactly once per epoch (but for a dropped last batch). The position is two
// numbers, so a run goes on exactly where it stopped.
#pragma once

#include <cstdint>
#include <memory>

#include "yoke/data/batch.h"
#include "yoke/data/dataset.h"

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

class Loader {
 public:
  // `dataset` must outlive the loader. Throws ConfigError when the data set cannot fill one batch.
  Loader(const Dataset& dataset, const DataOptions& options, uint64_t seed, Shard shard = {});
  ~Loader();
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  int64_t batches_per_epoch() const;
  // The next batch, over the end of an epoch into the next. Rethrows what went wrong in a worker.
  Batch next();
  // Where next() will read.
  Position position() const;
  // Goes on from there; what was prepared ahead is dropped.
  void seek(Position position);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace yoke::data
