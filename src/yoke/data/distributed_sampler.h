// A torch::data sampler that gives each rank its part, like torch.utils.data.DistributedSampler, but with
// every sample exactly once per epoch.
//
//   yoke::DistributedSampler sampler(*dataset.size(), yoke::shard(world), {.seed = 1});
//   auto loader = torch::data::make_data_loader(std::move(dataset), sampler, 64);
//   auto batches = yoke::shard(loader, sampler);      // counts batches: run.track("data", batches)
//
// The order of an epoch depends on seed and epoch only. Each global batch (batch size x ranks) is divided in
// rank order; the last one is smaller, and samples that would leave a rank without one are added to it. All
// ranks have the same number of batches, whose sizes differ by at most one sample per rank.
//
// Copies share their state: a copy passed to a loader follows set_epoch(). One thread.
#pragma once

#include <torch/data/samplers/base.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "yoke/data/sampler.h"

namespace yoke {

struct DistributedSamplerOptions {
  bool shuffle = true;
  uint64_t seed = 0;       // the same on all ranks
  bool drop_last = false;  // omit an incomplete global batch
};

class DistributedSampler : public torch::data::samplers::Sampler<> {
 public:
  // Throws ConfigError if there are fewer samples than ranks.
  DistributedSampler(size_t samples, data::Shard shard, DistributedSamplerOptions options = {});

  // Sets the order of the next pass. Takes effect with reset(), which a loader calls in begin().
  void set_epoch(int64_t epoch);
  int64_t epoch() const;
  // Starts the next pass, and only that one, at this sample of its epoch, counted over all ranks.
  void start_at(int64_t sample);
  // Position in the epoch after `batches` batches from `sample`.
  int64_t sample_after(int64_t sample, int64_t batches, size_t batch_size) const;
  data::Shard shard() const;

  void reset(std::optional<size_t> new_size = std::nullopt) override;
  std::optional<std::vector<size_t>> next(size_t batch_size) override;
  void save(torch::serialize::OutputArchive& archive) const override;
  void load(torch::serialize::InputArchive& archive) override;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace yoke
