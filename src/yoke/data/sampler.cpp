#include "yoke/data/sampler.h"

#include <algorithm>
#include <cmath>

#include "yoke/base/error.h"
#include "yoke/base/random.h"

namespace yoke::data {
namespace {

constexpr uint64_t kOrderPurpose = 0x6f72646572;  // "order"

// Where part `part` of `parts` of `count` samples begins: count * part / parts without overflow.
int64_t part_begin(int64_t count, int64_t part, int64_t parts) {
  return count / parts * part + count % parts * part / parts;
}

// The same in proportion to `shares`. Everybody gets one sample, as long as there are enough.
int64_t part_begin(int64_t count, int64_t part, const std::vector<double>& shares) {
  double before = 0, all = 0;
  for (size_t i = 0; i < shares.size(); ++i) {
    all += shares[i];
    if (static_cast<int64_t>(i) < part) before += shares[i];
  }
  auto parts = static_cast<int64_t>(shares.size());
  auto begin = static_cast<int64_t>(std::llround(static_cast<double>(count) * before / all));
  return std::clamp(begin, std::min(part, count), std::max<int64_t>(0, count - (parts - part)));
}

}  // namespace

Sampler::Sampler(int64_t samples, const DataOptions& options, uint64_t seed, Shard shard)
    : samples_(samples), shuffle_(options.shuffle), seed_(seed), shard_(shard) {
  YOKE_CHECK(shard.size >= 1 && shard.rank >= 0 && shard.rank < shard.size, "shard {} of {}", shard.rank,
             shard.size);
  if (samples < 1) throw ConfigError("data.name = {}: no samples.", options.name);
  if (options.batch_size < 1)
    throw ConfigError("data.batch_size = {}: expected at least 1.", options.batch_size);
  if (__builtin_mul_overflow(options.batch_size, shard.size, &global_batch_)) global_batch_ = INT64_MAX;

  const int64_t rest = samples % global_batch_;
  batches_ = samples / global_batch_ + (rest > 0 && !options.drop_last ? 1 : 0);
  if (batches_ == 0) {
    throw ConfigError(
        "data.batch_size = {} with {} replicas needs {} samples for one batch, the data set has {}. Use a "
        "batch_size "
        "of at most {}, or data.drop_last = false.",
        options.batch_size, shard.size, global_batch_, samples, std::max<int64_t>(1, samples / shard.size));
  }
  if (!options.drop_last && rest > 0 && rest < shard.size) {
    throw ConfigError(
        "data.drop_last = false: {} samples in batches of {} leave {} for the last one, fewer than the {} "
        "replicas. "
        "Use data.drop_last = true, another data.batch_size or data.limit = {}.",
        samples, global_batch_, rest, shard.size, samples - rest);
  }
}

void Sampler::set_shares(std::vector<double> shares) {
  YOKE_CHECK(shares.empty() || static_cast<int64_t>(shares.size()) == shard_.size, "{} shares for {} shards",
             shares.size(), shard_.size);
  std::lock_guard lock(mutex_);
  shares_ = std::move(shares);
}

int64_t Sampler::global_samples(Position position) const {
  return std::min(global_batch_, samples_ - position.batch * global_batch_);
}

double Sampler::weight(Position position) const {
  Part own = part(position);
  return static_cast<double>((own.last - own.first) * shard_.size) /
         static_cast<double>(global_samples(position));
}

Sampler::Part Sampler::part(Position position) const {
  const int64_t begin = position.batch * global_batch_, count = global_samples(position);
  std::lock_guard lock(mutex_);
  if (shares_.empty())
    return {begin + part_begin(count, shard_.rank, shard_.size),
            begin + part_begin(count, shard_.rank + 1, shard_.size)};
  return {begin + part_begin(count, shard_.rank, shares_),
          begin + part_begin(count, shard_.rank + 1, shares_)};
}

std::vector<int64_t> Sampler::indices(Position position) const {
  YOKE_CHECK(position.epoch >= 0 && position.batch >= 0 && position.batch < batches_,
             "epoch {}, batch {} of {}", position.epoch, position.batch, batches_);
  const auto [first, last] = part(position);
  std::vector<int64_t> result(static_cast<size_t>(last - first));
  if (!shuffle_) {
    for (int64_t i = first; i < last; ++i) result[static_cast<size_t>(i - first)] = i;
    return result;
  }
  const Order all = order(position.epoch);
  std::copy(all->begin() + first, all->begin() + last, result.begin());
  return result;
}

Sampler::Order Sampler::order(int64_t epoch) const {
  std::lock_guard lock(mutex_);
  Cached& cached = cache_[epoch % 2];
  if (cached.epoch != epoch) {
    const uint64_t seed = derive_seed(seed_, kOrderPurpose, static_cast<uint64_t>(epoch));
    cached = {epoch, std::make_shared<const std::vector<int64_t>>(random_permutation(samples_, seed))};
  }
  return cached.order;
}

}  // namespace yoke::data
