// One range of the parameters on its server: values, one accumulator, and the optimizer's state.
//
// Values are handed out without a copy (copy on write): while somebody holds the buffer, updates go to a new
// one, so a reader sees one version. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "yoke/base/data_type.h"
#include "yoke/ps/sharding.h"
#include "yoke/ps/updater.h"

namespace yoke::ps {

class RangeStore {
 public:
  using Buffer = std::shared_ptr<std::vector<std::byte>>;

  // Values start as zeros, version 0.
  RangeStore(size_t number, const Range& range, DataType type, std::unique_ptr<Updater> updater, int workers);

  size_t number() const { return number_; }
  const Range& range() const { return range_; }
  int64_t version() const { return version_; }
  int64_t counted() const { return counted_; }  // gradients in the accumulator

  // Array 0 is the values, the following are the optimizer's. Throws CommError for an invalid array or size.
  void assign(int64_t array, std::span<const std::byte> data, int64_t version, int64_t steps);

  // Whether this worker's gradient of minibatch `sequence` is new; note() records it.
  bool is_new(int worker, int64_t sequence) const { return last_[static_cast<size_t>(worker)] < sequence; }
  void note(int worker, int64_t sequence) { last_[static_cast<size_t>(worker)] = sequence; }
  // Whether it was received or written off.
  bool is_over(int worker, int64_t life, int64_t sequence) const;
  // The worker was restarted: its sequence numbers start again.
  void begin_life(int worker, int64_t life);
  // Marks an accepted gradient as never arriving. False: it had arrived already.
  bool write_off(int worker, int64_t life, int64_t sequence);

  // What was received, for a copy of this range: by worker, last minibatch of each previous life, then of
  // the current one. `less`: received, but not in the accumulator or the values.
  struct Early {
    int worker;
    int64_t life;
    int64_t sequence;
  };
  std::vector<std::vector<int64_t>> marks(std::span<const Early> less) const;
  // Throws CommError if they do not fit.
  void set_marks(std::vector<std::vector<int64_t>> marks);
  // Follows a worker into this life, unless it was known before.
  void reach_life(int worker, int64_t life);

  // Adds the gradient of the whole range to the accumulator.
  void add(std::span<const std::byte> gradient, double scale);
  // Applies the accumulator, if it is not empty; the values then have `version`.
  void update(double lr, double weight, int64_t version);
  // Moves to `version` without applying: the accumulator is dropped.
  void pass(int64_t version);
  // The accumulator: what update() applies or has applied last. Empty if nothing was ever added.
  std::span<const std::byte> sum() const { return accumulator_; }
  // Replaces it by the sum of that many gradients. Throws CommError if the size differs.
  void set_sum(std::span<const std::byte> sum, int64_t counted);
  // Sum of squares of `weight` * accumulator.
  double square(double weight) const;
  // Like update() with a single gradient, without accumulating it. Requires: counted() == 0.
  void update_with(std::span<const std::byte> gradient, double scale, double lr, double weight,
                   int64_t version);
  // Applies the gradient of a part immediately, outside of updates: the version is incremented.
  void apply_now(int64_t begin, std::span<const std::byte> gradient, double scale);

  // The values; they do not change while the buffer is held.
  const Buffer& values() const { return values_; }
  std::span<const std::byte> part(int64_t begin, int64_t count) const;

  // Keeps the current version until drop_snapshot().
  void take_snapshot();
  void drop_snapshot() { snapshot_.reset(); }
  struct Snapshot {
    int64_t version = 0;
    int64_t steps = 0;
    Buffer values;
    std::vector<Buffer> state;
  };
  const std::optional<Snapshot>& snapshot() const { return snapshot_; }

  int64_t steps() const { return updater_->steps; }
  // The optimizer's, each as long as the values.
  std::vector<std::span<std::byte>> state() const { return updater_->state(); }
  size_t state_arrays() const { return updater_->state().size(); }
  size_t bytes_held() const;  // values, accumulator and state

 private:
  void* writable(bool whole);
  void step(const UpdateStep& step, const std::byte* gradient, bool whole);
  void finish_move();

  size_t number_;
  Range range_;
  DataType type_;
  size_t element_;
  std::unique_ptr<Updater> updater_;
  Buffer values_;
  Buffer moved_;  // new values, while values_ is being read
  Buffer spare_;  // previous values, reused once nobody reads them
  std::vector<std::byte> accumulator_;
  int64_t counted_ = 0;
  int64_t version_ = 0;
  std::vector<int64_t> last_;                 // by worker: last minibatch received
  std::vector<std::vector<int64_t>> before_;  // by worker and previous life: last minibatch of that life
  std::optional<Snapshot> snapshot_;
};

}  // namespace yoke::ps
