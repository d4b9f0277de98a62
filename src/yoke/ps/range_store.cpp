#include "yoke/ps/range_store.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "yoke/base/error.h"
#include "yoke/ps/add_scaled.h"

namespace yoke::ps {
namespace {

template <class T>
double sum_of_squares(const std::byte* data, int64_t count) {
  constexpr int64_t kLanes = 8;  // independent partial sums
  const T* values = reinterpret_cast<const T*>(data);
  double sums[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      auto value = static_cast<double>(values[i + lane]);
      sums[lane] += value * value;
    }
  }
  double total = 0;
  for (double sum : sums) total += sum;
  for (; i < count; ++i) total += static_cast<double>(values[i]) * static_cast<double>(values[i]);
  return total;
}

}  // namespace

RangeStore::RangeStore(size_t number, const Range& range, DataType type, std::unique_ptr<Updater> updater,
                       int workers)
    : number_(number),
      range_(range),
      type_(type),
      element_(size_of(type)),
      updater_(std::move(updater)),
      values_(std::make_shared<std::vector<std::byte>>(static_cast<size_t>(range.count) * element_)),
      last_(static_cast<size_t>(workers), -1),
      before_(static_cast<size_t>(workers)) {}

void RangeStore::assign(int64_t array, std::span<const std::byte> data, int64_t version, int64_t steps) {
  auto state = updater_->state();
  if (array < 0 || static_cast<size_t>(array) > state.size())
    throw CommError("range {} has {} arrays, but not number {}", number_, state.size() + 1, array);
  if (data.size() != values_->size())
    throw CommError("range {} has {} bytes, not {}", number_, values_->size(), data.size());
  std::byte* target =
      array == 0 ? static_cast<std::byte*>(writable(true)) : state[static_cast<size_t>(array) - 1].data();
  std::memcpy(target, data.data(), data.size());
  finish_move();
  version_ = version;
  updater_->steps = steps;
}

void RangeStore::begin_life(int worker, int64_t life) {
  auto index = static_cast<size_t>(worker);
  std::vector<int64_t>& before = before_[index];
  before.push_back(std::exchange(last_[index], -1));
  before.resize(static_cast<size_t>(life), -1);  // lives that never pushed here
}

void RangeStore::reach_life(int worker, int64_t life) {
  if (static_cast<int64_t>(before_[static_cast<size_t>(worker)].size()) < life) begin_life(worker, life);
}

std::vector<std::vector<int64_t>> RangeStore::marks(std::span<const Early> less) const {
  std::vector<std::vector<int64_t>> marks = before_;
  for (size_t worker = 0; worker < marks.size(); ++worker) marks[worker].push_back(last_[worker]);
  for (const Early& one : less) {
    int64_t& mark = marks[static_cast<size_t>(one.worker)][static_cast<size_t>(one.life)];
    mark = std::min(mark, one.sequence - 1);
  }
  return marks;
}

void RangeStore::set_marks(std::vector<std::vector<int64_t>> marks) {
  if (marks.size() != last_.size())
    throw CommError("range {} has marks of {} workers, not {}", number_, last_.size(), marks.size());
  for (const std::vector<int64_t>& own : marks)
    if (own.empty()) throw CommError("range {}: a worker without a life", number_);
  for (size_t worker = 0; worker < marks.size(); ++worker) {
    last_[worker] = marks[worker].back();
    marks[worker].pop_back();
    before_[worker] = std::move(marks[worker]);
  }
}

bool RangeStore::is_over(int worker, int64_t life, int64_t sequence) const {
  auto index = static_cast<size_t>(worker);
  bool past = static_cast<size_t>(life) < before_[index].size();
  return (past ? before_[index][static_cast<size_t>(life)] : last_[index]) >= sequence;
}

bool RangeStore::write_off(int worker, int64_t life, int64_t sequence) {
  auto index = static_cast<size_t>(worker);
  bool past = static_cast<size_t>(life) < before_[index].size();
  int64_t& last = past ? before_[index][static_cast<size_t>(life)] : last_[index];
  if (last >= sequence) return false;
  last = sequence;
  return true;
}

void RangeStore::add(std::span<const std::byte> gradient, double scale) {
  // Allocated on first use: with one gradient per update it is never needed.
  if (accumulator_.empty()) accumulator_.resize(values_->size());
  if (counted_++ == 0 && scale == 1)
    std::memcpy(accumulator_.data(), gradient.data(), gradient.size());
  else if (counted_ == 1) {
    std::memset(accumulator_.data(), 0, accumulator_.size());
    add_scaled(type_, accumulator_.data(), gradient.data(), scale, range_.count);
  } else {
    add_scaled(type_, accumulator_.data(), gradient.data(), scale, range_.count);
  }
}

void RangeStore::update(double lr, double weight, int64_t version) {
  version_ = version;
  if (counted_ > 0) step({lr, weight, version_, 0, range_.count}, accumulator_.data(), true);
  counted_ = 0;
}

void RangeStore::pass(int64_t version) {
  version_ = version;
  counted_ = 0;
}

void RangeStore::set_sum(std::span<const std::byte> sum, int64_t counted) {
  if (sum.size() != values_->size() || counted < 1)
    throw CommError("range {} has {} bytes; a sum of {} gradients with {} does not fit", number_,
                    values_->size(), counted, sum.size());
  accumulator_.assign(sum.begin(), sum.end());
  counted_ = counted;
}

double RangeStore::square(double weight) const {
  if (counted_ == 0) return 0;
  double sum = type_ == DataType::kFloat32 ? sum_of_squares<float>(accumulator_.data(), range_.count)
                                           : sum_of_squares<double>(accumulator_.data(), range_.count);
  return weight * weight * sum;
}

void RangeStore::update_with(std::span<const std::byte> gradient, double scale, double lr, double weight,
                             int64_t version) {
  version_ = version;
  step({lr, weight * scale, version_, 0, range_.count}, gradient.data(), true);
}

void RangeStore::apply_now(int64_t begin, std::span<const std::byte> gradient, double scale) {
  auto count = static_cast<int64_t>(gradient.size() / element_);
  step({1, scale, 0, begin - range_.begin, count}, gradient.data(), count == range_.count);
  ++version_;
}

// New values overwrite the old ones, unless somebody still reads those.
void* RangeStore::writable(bool whole) {
  if (values_.use_count() == 1) return values_->data();
  moved_ = spare_ && spare_.use_count() == 1 ? std::move(spare_)
                                             : std::make_shared<std::vector<std::byte>>(values_->size());
  if (!whole) std::memcpy(moved_->data(), values_->data(), values_->size());
  return moved_->data();
}

void RangeStore::finish_move() {
  if (!moved_) return;
  spare_ = std::exchange(values_, std::move(moved_));
  moved_ = nullptr;
}

void RangeStore::step(const UpdateStep& step, const std::byte* gradient, bool whole) {
  auto* to = static_cast<std::byte*>(writable(whole));
  size_t offset = static_cast<size_t>(step.offset) * element_;
  updater_->apply(step, gradient, values_->data() + offset, to + offset);
  ++updater_->steps;
  finish_move();
}

std::span<const std::byte> RangeStore::part(int64_t begin, int64_t count) const {
  return {values_->data() + static_cast<size_t>(begin - range_.begin) * element_,
          static_cast<size_t>(count) * element_};
}

void RangeStore::take_snapshot() {
  Snapshot snapshot{version_, updater_->steps, values_, {}};
  for (std::span<std::byte> array : updater_->state())
    snapshot.state.push_back(std::make_shared<std::vector<std::byte>>(array.begin(), array.end()));
  snapshot_ = std::move(snapshot);
}

size_t RangeStore::bytes_held() const {
  return values_->size() * (1 + updater_->state().size()) + accumulator_.size();
}

}  // namespace yoke::ps
