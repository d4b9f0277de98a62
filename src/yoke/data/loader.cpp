#include "yoke/data/loader.h"

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <map>
#include <mutex>
#include <stop_token>
#include <thread>
#include <vector>

#include "yoke/base/error.h"

namespace yoke::data {

// Batches are numbered from `origin`, across all epochs. Workers claim numbers in order and store results
// under them, next() takes them in order: the stream does not depend on the number or speed of the workers.
struct Loader::Impl {
  Impl(const Dataset& data, const DataOptions& o, uint64_t seed, Shard shard)
      : dataset(data),
        options(o),
        order_seed(seed),
        sampler(data.size(), o, seed, shard),
        prefetch(std::max({int64_t{1}, o.prefetch, o.workers})) {
    for (int64_t i = 0; i < o.workers; ++i)
      workers.emplace_back([this](std::stop_token stop) { work(stop); });
  }

  // All are stopped before the first is joined: only batches in progress are completed.
  ~Impl() {
    for (std::jthread& worker : workers) worker.request_stop();
  }

  struct Result {
    Batch batch;
    std::exception_ptr error;
  };

  Batch make(Position position) const {
    Batch batch = dataset.draw(sampler.indices_at(position), position.epoch);
    batch.global_samples = sampler.global_samples_at(position);
    batch.weight = sampler.weight_at(position);
    return batch;
  }

  Result try_make(Position position) const {
    try {
      return {make(position), nullptr};
    } catch (...) {
      return {{}, std::current_exception()};  // rethrown by next()
    }
  }

  void work(std::stop_token stop) {
    std::unique_lock lock(mutex);
    while (true) {
      room.wait(lock, stop, [&] { return claimed < taken + prefetch; });
      if (stop.stop_requested()) return;
      const int64_t number = claimed++;
      const int64_t generation = seeks;
      const Position position = sampler.after(origin, number);
      lock.unlock();
      Result result = try_make(position);
      lock.lock();
      if (generation != seeks) continue;  // made for an abandoned position
      ready.emplace(number, std::move(result));
      if (number == taken) filled.notify_one();
    }
  }

  Batch take() {
    std::unique_lock lock(mutex);
    filled.wait(lock, [&] { return ready.contains(taken); });
    const auto found = ready.find(taken);
    if (found->second.error) std::rethrow_exception(found->second.error);
    Batch batch = std::move(found->second.batch);
    ready.erase(found);
    ++taken;
    lock.unlock();
    room.notify_one();
    return batch;
  }

  const Dataset& dataset;
  const DataOptions options;
  const uint64_t order_seed;
  Sampler sampler;
  const int64_t prefetch;

  mutable std::mutex mutex;
  std::condition_variable_any room;  // a worker may continue
  std::condition_variable filled;    // the batch that next() waits for is ready
  std::map<int64_t, Result> ready;
  Position origin;      // of number 0
  int64_t claimed = 0;  // the next number to claim
  int64_t taken = 0;    // the next number returned by next()
  int64_t seeks = 0;
  std::vector<std::jthread> workers;  // last: joined before the members they use are destroyed
};

Loader::Loader(const Dataset& dataset, const DataOptions& options, uint64_t seed, Shard shard)
    : impl_(std::make_unique<Impl>(dataset, options, seed, shard)) {}

Loader::~Loader() = default;

std::unique_ptr<Loader> Loader::with_shard(Shard shard) const {
  auto other = std::make_unique<Loader>(impl_->dataset, impl_->options, impl_->order_seed, shard);
  other->seek(position());
  return other;
}

int64_t Loader::batches_per_epoch() const {
  return impl_->sampler.batches_per_epoch();
}

std::vector<torch::Tensor> Loader::peek() {
  std::unique_lock lock(impl_->mutex);
  if (impl_->workers.empty() && !impl_->ready.contains(impl_->taken))
    impl_->ready.emplace(impl_->taken, impl_->try_make(impl_->sampler.after(impl_->origin, impl_->taken)));
  const auto found = impl_->ready.find(impl_->taken);
  return found == impl_->ready.end() ? std::vector<torch::Tensor>() : found->second.batch.inputs;
}

Batch Loader::next() {
  if (!impl_->workers.empty() || !impl_->ready.empty()) return impl_->take();
  Batch batch = impl_->make(position());
  ++impl_->taken;
  return batch;
}

Position Loader::position() const {
  std::lock_guard lock(impl_->mutex);
  return impl_->sampler.after(impl_->origin, impl_->taken);
}

Position Loader::after(Position from, int64_t batches) const {
  return impl_->sampler.after(from, batches);
}

int64_t Loader::batches_done() const {
  const Position here = position();
  return (here.epoch + 1) * batches_per_epoch() - impl_->sampler.batches_from(here.sample);
}

void Loader::set_shares(const std::vector<double>& shares) {
  Position here = position();
  {
    // Batches made meanwhile have the old shares: seek() drops them.
    std::lock_guard lock(impl_->mutex);
    impl_->sampler.set_shares(shares);
  }
  seek(here);
}

void Loader::seek(Position position) {
  const Position origin = impl_->sampler.after(position, 0);
  {
    std::lock_guard lock(impl_->mutex);
    impl_->origin = origin;
    impl_->claimed = impl_->taken = 0;
    impl_->ready.clear();
    ++impl_->seeks;
  }
  impl_->room.notify_all();
}

}  // namespace yoke::data
