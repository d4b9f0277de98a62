#include "yoke/data/distributed_sampler.h"

#include <torch/serialize/archive.h>

#include <numeric>
#include <utility>

#include "yoke/base/error.h"
#include "yoke/base/random.h"

namespace yoke {
namespace {

constexpr uint64_t kSharedOrder = 0x736861726564;  // "shared"

}  // namespace

struct DistributedSampler::State {
  int64_t samples = 0;
  data::Shard shard;
  DistributedSamplerOptions options;
  int64_t epoch = 0;
  int64_t start = 0;           // start of the next pass
  int64_t at = 0;              // samples of all ranks assigned so far
  std::vector<int64_t> order;  // of the pass
  bool begun = false;

  void begin() {
    order.resize(static_cast<size_t>(samples));
    if (options.shuffle)
      order =
          random_permutation(samples, derive_seed(options.seed, kSharedOrder, static_cast<uint64_t>(epoch)));
    else
      std::iota(order.begin(), order.end(), int64_t{0});
    at = std::exchange(start, 0);
    begun = true;
  }

  // Size of the global batch that starts at `sample`; 0: the epoch is over.
  int64_t global_batch(int64_t sample, int64_t batch_size) const {
    const int64_t full = batch_size * shard.size, left = samples - sample;
    // Less than one sample per rank is left only after a resume on more ranks.
    if (left < shard.size) return 0;
    if (options.drop_last) return left >= full ? full : 0;
    if (left <= full) return left;
    return left - full < shard.size ? left : full;
  }

  std::optional<std::vector<size_t>> next(int64_t batch_size) {
    const int64_t count = global_batch(at, batch_size);
    if (count == 0) return std::nullopt;
    const int64_t first = at + count * shard.rank / shard.size;
    const int64_t last = at + count * (shard.rank + 1) / shard.size;
    at += count;
    return std::vector<size_t>(order.begin() + first, order.begin() + last);
  }
};

DistributedSampler::DistributedSampler(size_t samples, data::Shard shard, DistributedSamplerOptions options)
    : state_(std::make_shared<State>()) {
  YOKE_CHECK(shard.size >= 1 && shard.rank >= 0 && shard.rank < shard.size, "shard {} of {}", shard.rank,
             shard.size);
  *state_ = {.samples = static_cast<int64_t>(samples), .shard = shard, .options = options, .order = {}};
  if (state_->samples < shard.size)
    throw ConfigError("{} samples for {} ranks: each needs at least one. Use fewer ranks, or more data.",
                      samples, shard.size);
}

void DistributedSampler::set_epoch(int64_t epoch) {
  state_->epoch = epoch;
  state_->begun = false;
}
int64_t DistributedSampler::epoch() const {
  return state_->epoch;
}
void DistributedSampler::start_at(int64_t sample) {
  if (sample < 0 || sample > state_->samples)
    throw ConfigError("cannot resume at sample {}: the data set has {} samples. Was it changed since?",
                      sample, state_->samples);
  state_->start = sample;
  state_->begun = false;
}
int64_t DistributedSampler::sample_after(int64_t sample, int64_t batches, size_t batch_size) const {
  for (; batches > 0; --batches) sample += state_->global_batch(sample, static_cast<int64_t>(batch_size));
  return sample;
}
data::Shard DistributedSampler::shard() const {
  return state_->shard;
}

void DistributedSampler::reset(std::optional<size_t> new_size) {
  if (new_size) state_->samples = static_cast<int64_t>(*new_size);
  state_->begin();
}

std::optional<std::vector<size_t>> DistributedSampler::next(size_t batch_size) {
  if (!state_->begun) state_->begin();
  return state_->next(static_cast<int64_t>(batch_size));
}

void DistributedSampler::save(torch::serialize::OutputArchive& archive) const {
  archive.write("epoch", torch::tensor(state_->epoch, torch::kInt64), /*is_buffer=*/true);
  archive.write("at", torch::tensor(state_->at, torch::kInt64), /*is_buffer=*/true);
}

void DistributedSampler::load(torch::serialize::InputArchive& archive) {
  torch::Tensor epoch = torch::empty(1, torch::kInt64), at = torch::empty(1, torch::kInt64);
  archive.read("epoch", epoch, /*is_buffer=*/true);
  archive.read("at", at, /*is_buffer=*/true);
  state_->epoch = epoch.item<int64_t>();
  state_->begin();
  state_->at = at.item<int64_t>();
}

}  // namespace yoke
