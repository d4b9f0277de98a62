#include "yoke/data/sampler.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "yoke/base/error.h"
#include "yoke/base/random.h"
#include "yoke/base/shared_item.h"

namespace yoke::data {
namespace {

constexpr int64_t kMostEpochs = int64_t{1} << 40;
constexpr int64_t kUncounted = 2;  // samples of a shard without a share: batch statistics need two
constexpr uint64_t kOrderPurpose = 0x6f72646572;  // "order"

// Start of part `part` of `parts` of `count` samples: count * part / parts without overflow.
int64_t part_begin(int64_t count, int64_t part, int64_t parts) {
  return count / parts * part + count % parts * part / parts;
}

// The same in proportion to `shares`. Every part gets at least one sample, if there are enough.
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
    : samples_(samples),
      drop_last_(options.drop_last),
      shuffle_(options.shuffle),
      seed_(seed),
      shard_(shard) {
  YOKE_CHECK(shard.size >= 1 && shard.rank >= 0 && shard.rank < shard.size, "shard {} of {}", shard.rank,
             shard.size);
  if (samples < 1) throw ConfigError("data.name = {}: no samples.", options.name);
  if (options.batch_size < 1)
    throw ConfigError("data.batch_size = {}: expected at least 1.", options.batch_size);
  if (__builtin_mul_overflow(options.batch_size, shard.size, &global_batch_)) global_batch_ = INT64_MAX;
  if (shard.global_batch > 0) global_batch_ = shard.global_batch;
  if (batches_per_epoch() == 0) {
    throw ConfigError(
        "data.batch_size = {} with {} replicas needs {} samples per batch, but the data set has {}. Use a "
        "batch_size of at most {}, or data.drop_last = false.",
        options.batch_size, shard.size, global_batch_, samples, std::max<int64_t>(1, samples / shard.size));
  }
}

int64_t Sampler::batches_from(int64_t sample) const {
  const int64_t left = samples_ - sample;
  return left / global_batch_ + (left % global_batch_ > 0 && !drop_last_ ? 1 : 0);
}

Position Sampler::after(Position from, int64_t batches) const {
  if (from.epoch < 0 || from.epoch > kMostEpochs || from.sample < 0 || from.sample > samples_)
    throw ConfigError(
        "cannot resume at sample {} of epoch {}: the data set has {} samples. Has the data or data.limit "
        "changed?",
        from.sample, from.epoch, samples_);
  const int64_t here = batches_from(from.sample);
  if (batches < here) return {from.epoch, from.sample + batches * global_batch_};
  batches -= here;
  return {from.epoch + 1 + batches / batches_per_epoch(), batches % batches_per_epoch() * global_batch_};
}

void Sampler::set_shares(std::vector<double> shares) {
  YOKE_CHECK(shares.empty() || static_cast<int64_t>(shares.size()) == shard_.size, "{} shares for {} shards",
             shares.size(), shard_.size);
  YOKE_CHECK(shares.empty() || *std::ranges::max_element(shares) > 0, "no shard has a share");
  std::lock_guard lock(mutex_);
  shares_ = std::move(shares);
}

int64_t Sampler::global_samples_at(Position position) const {
  return std::min(global_batch_, samples_ - position.sample);
}

double Sampler::weight_at(Position position) const {
  return part(position).weight;
}

Sampler::Place Sampler::place() const {
  std::lock_guard lock(mutex_);
  if (shares_.empty()) return {shard_.rank, shard_.size, {}};
  Place place;
  for (int64_t i = 0; i < shard_.size; ++i) {
    const double share = shares_[static_cast<size_t>(i)];
    if (i == shard_.rank && share > 0) place.part = static_cast<int64_t>(place.shares.size());
    if (share > 0) place.shares.push_back(share);
  }
  place.parts = static_cast<int64_t>(place.shares.size());
  return place;
}

Sampler::Part Sampler::part(Position position) const {
  const int64_t begin = position.sample, count = global_samples_at(position);
  const Place own = place();
  if (own.part < 0) return {begin, begin + std::min(count, kUncounted), 0};
  if (count < own.parts) {
    const SharedItem shared = shared_item(count, own.part, own.parts);
    return {begin + shared.item, begin + shared.item + 1,
            static_cast<double>(shard_.size) / static_cast<double>(count * shared.holders)};
  }
  auto edge = [&](int64_t part) {
    return own.shares.empty() ? part_begin(count, part, own.parts) : part_begin(count, part, own.shares);
  };
  const int64_t first = edge(own.part), last = edge(own.part + 1);
  double weight = static_cast<double>((last - first) * shard_.size) / static_cast<double>(count);
  return {begin + first, begin + last, weight};
}

std::vector<int64_t> Sampler::indices_at(Position position) const {
  YOKE_CHECK(position.epoch >= 0 && position.sample >= 0 && batches_from(position.sample) > 0,
             "no batch at sample {} of epoch {}", position.sample, position.epoch);
  const Part own = part(position);
  std::vector<int64_t> result(static_cast<size_t>(own.last - own.first));
  if (!shuffle_) {
    std::iota(result.begin(), result.end(), own.first);
    return result;
  }
  const Order all = order(position.epoch);
  std::copy(all->begin() + own.first, all->begin() + own.last, result.begin());
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
