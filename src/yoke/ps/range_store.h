// One range of the parameters on its server: values, one accumulator, and the optimizer's state.
//
// Values are handed out without a copy. Who moves them while somebody still reads them moves a copy: a reader
// sees one version. One thread.
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

  // Values begin as zeros, version 0.
  RangeStore(size_t number, const Range& range, DataType type, std::unique_ptr<Updater> updater, int workers);

  size_t number() const { return number_; }
  const Range& range() const { return range_; }
  int64_t version() const { return version_; }
  int64_t counted() const { return counted_; }  // gradients in the accumulator

  // Array 0 are the values, then the optimizer's. Throws CommError on a wrong number or size.
  void assign(int64_t array, std::span<const std::byte> data, int64_t version, int64_t steps);

  // Whether a worker's gradient of minibatch `sequence` has not been taken before; note() takes it.
  bool is_new(int worker, int64_t sequence) const { return last_[static_cast<size_t>(worker)] < sequence; }
  void note(int worker, int64_t sequence) { last_[static_cast<size_t>(worker)] = sequence; }
  // Whether it was taken, or written off.
  bool is_over(int worker, int64_t life, int64_t sequence) const;
  // The worker was started again: its numbers begin anew.
  void begin_life(int worker, int64_t life);
  // A gradient that counts and will not come, unless it has. True: it had not.
  bool write_off(int worker, int64_t life, int64_t sequence);

  // Adds a whole range's gradient to the accumulator.
  void add(std::span<const std::byte> gradient, double scale);
  // Applies what was accumulated, or nothing where nothing was; the values are of `version` then.
  void update(double lr, double weight, int64_t version);
  // Passes to `version` without it: what was accumulated is dropped.
  void pass(int64_t version);
  // Sum of squares of `weight` times what was accumulated.
  double square(double weight) const;
  // The same as update() with one gradient that need not be accumulated. Requires: counted() == 0.
  void update_with(std::span<const std::byte> gradient, double scale, double lr, double weight,
                   int64_t version);
  // Applies a part's gradient at once, outside of updates: the version grows by one.
  void apply_now(int64_t begin, std::span<const std::byte> gradient, double scale);

  // The values; they stay what they are as long as the buffer is held.
  const Buffer& values() const { return values_; }
  std::span<const std::byte> part(int64_t begin, int64_t count) const;

  // Keeps what this version is, until drop_snapshot().
  void take_snapshot();
  void drop_snapshot() { snapshot_.reset(); }
  struct Snapshot {
    int64_t version = 0;
    int64_t steps = 0;
    Buffer values;
    std::vector<Buffer> state;
  };
  const std::optional<Snapshot>& snapshot() const { return snapshot_; }

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
  Buffer moved_;  // where values go next, while values_ is being read
  Buffer spare_;  // values before the last move, once nobody reads them
  std::vector<std::byte> accumulator_;
  int64_t counted_ = 0;
  int64_t version_ = 0;
  std::vector<int64_t> last_;                 // by worker: the last minibatch taken
  std::vector<std::vector<int64_t>> before_;  // by worker and past life: the last one of it
  std::optional<Snapshot> snapshot_;
};

}  // namespace yoke::ps
