// Each rank's part of a data loader, every sample once per epoch, with a position that a Run can save.
//
//   auto loader = torch::data::make_data_loader(std::move(dataset), 64);     // global batches
//   auto batches = yoke::shard(*loader, world);
//   run.track("data", batches);
//   while (batches.epoch() < 3)
//     for (auto& batch : batches) …                                          // this rank's rows of the batch
//
// The order of an epoch depends on seed and epoch only, the same on all ranks, and does not change the global
// random generator. All ranks have the same number of batches: a last batch with fewer rows than ranks is
// appended to the one before it.
//
// With a loader as above every rank reads every sample. If reading is the bottleneck, let the loader read
// this rank's samples only, with a DistributedSampler:
//
//   yoke::DistributedSampler sampler(samples, yoke::shard(world));
//   auto loader = torch::data::make_data_loader(std::move(dataset), sampler, 64);   // batches of one rank
//   auto batches = yoke::shard(*loader, sampler);
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <utility>

#include <torch/data/iterator.h>

#include "yoke/base/error.h"
#include "yoke/comm/join.h"
#include "yoke/data/distributed_sampler.h"
#include "yoke/data/loader.h"
#include "yoke/engine/batch_rows.h"
#include "yoke/engine/resumable.h"

namespace yoke {

namespace engine {

// Seeds the default CPU generator for one epoch's order, and restores it when destroyed.
class OrderSeed {
 public:
  OrderSeed(uint64_t seed, int64_t epoch);
  ~OrderSeed();
  OrderSeed(const OrderSeed&) = delete;
  OrderSeed& operator=(const OrderSeed&) = delete;

 private:
  torch::Tensor before_;
};

}  // namespace engine

// One pass at a time, one thread; `loader` must outlive it. Throws ConfigError for a batch with fewer rows
// than ranks, unless it is the last one of several.
template <class Loader>
class ShardedLoader : public Resumable {
 public:
  using Batch = typename Loader::BatchType;

  ShardedLoader(Loader& loader, data::Shard shard, uint64_t seed)
      : loader_(&loader), shard_(shard), seed_(seed) {}
  ShardedLoader(Loader& loader, DistributedSampler sampler)
      : loader_(&loader), sampler_(std::move(sampler)), shard_(sampler_->shard()) {}

  class Iterator {
   public:
    explicit Iterator(ShardedLoader* owner) : owner_(owner) {}
    Batch& operator*() { return *owner_->current_; }
    Batch* operator->() { return &*owner_->current_; }
    Iterator& operator++() {
      owner_->advance();
      return *this;
    }
    bool operator==(std::default_sentinel_t) const { return !owner_->current_; }

   private:
    ShardedLoader* owner_;
  };

  // Starts the pass of epoch(), after a resume at the saved position. The end of the pass increments epoch().
  Iterator begin() {
    start_pass();
    advance();
    return Iterator(this);
  }
  std::default_sentinel_t end() const { return {}; }

  int64_t epoch() const { return epoch_; }
  // Samples of all ranks in this epoch before the next batch.
  int64_t sample() const {
    return sampler_ ? sampler_->sample_after(start_, taken_, loader_->options().batch_size) : start_ + taken_;
  }

  nlohmann::json state() const override { return {{"epoch", epoch_}, {"sample", sample()}}; }
  void restore(const nlohmann::json& state) override {
    epoch_ = state.at("epoch");
    start_ = state.at("sample");
    taken_ = 0;
  }

 private:
  using Rows = BatchRows<Batch>;

  void start_pass() {
    ahead_.reset();
    taken_ = 0;
    fetched_ = false;
    if (sampler_) {
      sampler_->set_epoch(epoch_);
      sampler_->start_at(start_);
      source_.emplace(loader_->begin());
      return;
    }
    {
      engine::OrderSeed seed(seed_, epoch_);  // the loader's sampler draws its order in begin()
      source_.emplace(loader_->begin());
    }
    for (int64_t skip = start_; skip > 0;) {
      ahead_ = fetch();
      if (!ahead_) return;
      int64_t rows = Rows::count(*ahead_);
      if (rows > skip) ahead_ = Rows::part(*ahead_, skip, rows);
      if (rows <= skip) ahead_.reset();
      skip -= std::min(skip, rows);
    }
    if (!ahead_) ahead_ = fetch();
  }

  void advance() {
    current_ = sampler_ ? fetch() : next_rows();
    if (!current_) {
      ++epoch_;
      start_ = taken_ = 0;
      source_.reset();
    } else if (sampler_) {
      ++taken_;  // batches
    }
  }

  // The loader's next batch.
  std::optional<Batch> fetch() {
    if (!source_) return std::nullopt;
    if (std::exchange(fetched_, true)) ++*source_;
    if (*source_ == loader_->end()) {
      source_.reset();
      return std::nullopt;
    }
    return std::move(**source_);
  }

  // This rank's rows of the next batch, fetched one ahead so that a small last batch can be appended to it.
  std::optional<Batch> next_rows() {
    if (!ahead_) return std::nullopt;
    Batch whole = std::move(*ahead_);
    ahead_ = fetch();
    if (ahead_ && Rows::count(*ahead_) < shard_.size) {
      whole = Rows::join(whole, *ahead_);
      ahead_ = fetch();
    }
    const int64_t rows = Rows::count(whole);
    if (rows < shard_.size)
      throw ConfigError("a batch of {} rows for {} ranks: each needs at least one. Use larger batches.", rows,
                        shard_.size);
    taken_ += rows;
    return Rows::part(whole, rows * shard_.rank / shard_.size, rows * (shard_.rank + 1) / shard_.size);
  }

  Loader* loader_;
  std::optional<DistributedSampler> sampler_;
  data::Shard shard_;
  uint64_t seed_ = 0;
  int64_t epoch_ = 0;
  int64_t start_ = 0;  // sample at which this pass started
  int64_t taken_ = 0;  // since then: rows, with a sampler batches
  std::optional<torch::data::Iterator<Batch>> source_;
  bool fetched_ = false;
  std::optional<Batch> ahead_, current_;
};

inline data::Shard shard(const World& world) {
  return {world.rank(), world.size()};
}

// This rank's rows of every batch of `loader`. `seed`: of the order, the same on all ranks.
template <class Loader>
requires requires {
  typename Loader::BatchType;
}
ShardedLoader<Loader> shard(Loader& loader, const World& world, uint64_t seed = 0) {
  return {loader, shard(world), seed};
}
// `loader` reads the samples that `sampler` assigns to this rank.
template <class Loader>
requires requires {
  typename Loader::BatchType;
}
ShardedLoader<Loader> shard(Loader& loader, const DistributedSampler& sampler) {
  return {loader, sampler};
}
// For the result of make_data_loader().
template <class Loader>
ShardedLoader<Loader> shard(const std::unique_ptr<Loader>& loader, const World& world, uint64_t seed = 0) {
  return {*loader, shard(world), seed};
}
template <class Loader>
ShardedLoader<Loader> shard(const std::unique_ptr<Loader>& loader, const DistributedSampler& sampler) {
  return {*loader, sampler};
}
// A Yoke loader with the same data, options, seed and position.
inline std::unique_ptr<data::Loader> shard(const data::Loader& loader, const World& world) {
  return loader.with_shard(shard(world));
}

}  // namespace yoke
