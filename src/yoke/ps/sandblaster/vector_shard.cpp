#include "yoke/ps/sandblaster/vector_shard.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "yoke/base/error.h"
#include "yoke/kernels/lbfgs.h"

namespace yoke::ps::sandblaster {
namespace {

using kernels::LbfgsVector;

template <class T>
void add_exactly(std::span<const std::byte> gradient, double* sum, double* errors) {
  const auto* values = reinterpret_cast<const T*>(gradient.data());
  const size_t count = gradient.size() / sizeof(T);
  for (size_t i = 0; i < count; ++i) {
    const auto value = static_cast<double>(values[i]);
    const double next = sum[i] + value;
    if (errors != nullptr)
      errors[i] += std::abs(sum[i]) >= std::abs(value) ? (sum[i] - next) + value : (value - next) + sum[i];
    sum[i] = next;
  }
}

template <class Term>
double sum_over(int64_t count, Term term) {
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += term(i);
  return sum;
}

// A NaN stays.
template <class Term>
double max_over(int64_t count, Term term) {
  double most = 0;
  for (int64_t i = 0; i < count; ++i)
    if (const double one = term(i); !(one <= most) && !std::isnan(most)) most = one;
  return most;
}

}  // namespace

VectorShard::VectorShard(const Sharding& sharding, int server, DataType type, int64_t vectors)
    : type_(type), vectors_(vectors) {
  for (size_t i = 0; i < sharding.ranges().size(); ++i) {
    const Range& range = sharding.ranges()[i];
    if (range.server != server) continue;
    parts_.push_back({static_cast<int64_t>(i), elements_, range.count});
    elements_ += range.count;
  }
  memory_.resize(static_cast<size_t>(elements_ * vectors) * size_of(type));
  sum_.resize(static_cast<size_t>(elements_));
  if (type == DataType::kFloat64) errors_.resize(sum_.size());
}

size_t VectorShard::bytes_held() const {
  return memory_.size() + (sum_.size() + errors_.size()) * sizeof(double);
}

VectorShard::Part* VectorShard::part_of(int64_t range) {
  auto found = std::lower_bound(parts_.begin(), parts_.end(), range,
                                [](const Part& part, int64_t number) { return part.range < number; });
  return found != parts_.end() && found->range == range ? &*found : nullptr;
}

bool VectorShard::has(int64_t range) const {
  return const_cast<VectorShard*>(this)->part_of(range) != nullptr;
}

void VectorShard::check_vector(int64_t vector) const {
  if (vector < 0 || vector >= vectors_)
    throw CommError("vector {} does not exist: there are {}", vector, vectors_);
}

std::span<std::byte> VectorShard::slice(int64_t vector, int64_t range) {
  check_vector(vector);
  const Part* part = part_of(range);
  YOKE_CHECK(part != nullptr, "range {} is on another server", range);
  const size_t element = size_of(type_);
  return {memory_.data() + static_cast<size_t>(vector * elements_ + part->begin) * element,
          static_cast<size_t>(part->count) * element};
}

template <class T>
T* VectorShard::data(int64_t vector) {
  return reinterpret_cast<T*>(memory_.data()) + vector * elements_;
}

template <class T>
double VectorShard::operate(const CommandHead& command) {
  T* a = data<T>(command.a);
  const T* b = data<T>(command.b);
  const double factor = command.factor;
  switch (command.operation) {
    case Operation::kDot:
      return sum_over(elements_,
                      [=](int64_t i) { return static_cast<double>(a[i]) * static_cast<double>(b[i]); });
    case Operation::kMaxAbs:
      return max_over(elements_, [=](int64_t i) { return std::abs(static_cast<double>(a[i])); });
    case Operation::kSumAbs:
      return sum_over(elements_, [=](int64_t i) { return std::abs(static_cast<double>(a[i])); });
    case Operation::kScale:
      for (int64_t i = 0; i < elements_; ++i) a[i] = static_cast<T>(factor * static_cast<double>(b[i]));
      return 0;
    default:
      for (int64_t i = 0; i < elements_; ++i)
        a[i] = static_cast<T>(static_cast<double>(a[i]) + factor * static_cast<double>(b[i]));
      return 0;
  }
}

double VectorShard::run(const CommandHead& command) {
  switch (command.operation) {
    case Operation::kBegin:
      begin(command.a, command.b);
      return 0;
    case Operation::kEnd:
      end();
      return 0;
    case Operation::kDot:
    case Operation::kScale:
    case Operation::kAdd:
    case Operation::kMaxAbs:
    case Operation::kSumAbs:
      check_vector(command.a);
      check_vector(command.b);
      return type_ == DataType::kFloat64 ? operate<double>(command) : operate<float>(command);
  }
  throw CommError("operation {} on vectors does not exist", static_cast<int64_t>(command.operation));
}

void VectorShard::begin(int64_t evaluation, int64_t portions) {
  if (evaluation <= evaluation_ || portions < 1 || portions > kMostPortions)
    throw CommError("evaluation {} with {} portions cannot follow evaluation {}", evaluation, portions,
                    evaluation_);
  evaluation_ = evaluation;
  portions_ = portions;
  std::fill(sum_.begin(), sum_.end(), 0);
  std::fill(errors_.begin(), errors_.end(), 0);
  for (Part& part : parts_) part.taken.assign(static_cast<size_t>(portions), false);
}

void VectorShard::end() {
  portions_ = 0;
  for (size_t i = 0; i < sum_.size(); ++i) {
    if (type_ == DataType::kFloat64)
      // Infinities have no rounding error: it would be NaN.
      data<double>(LbfgsVector::kGradient)[i] = std::isfinite(sum_[i]) ? sum_[i] + errors_[i] : sum_[i];
    else
      data<float>(LbfgsVector::kGradient)[i] = static_cast<float>(sum_[i]);
  }
}

bool VectorShard::add_portion(const PortionHead& head, std::span<const std::byte> gradient) {
  Part* part = part_of(head.range);
  const size_t wanted = part == nullptr ? 0 : static_cast<size_t>(part->count) * size_of(type_);
  if (part == nullptr || gradient.size() != wanted)
    throw CommError("{} bytes for range {}, which holds {} here", gradient.size(), head.range, wanted);
  if (head.evaluation != evaluation_ || portions_ == 0) return false;
  if (head.portion < 0 || head.portion >= portions_)
    throw CommError("portion {} does not exist: there are {}", head.portion, portions_);
  if (part->taken[static_cast<size_t>(head.portion)]) return false;
  part->taken[static_cast<size_t>(head.portion)] = true;
  double* sum = sum_.data() + part->begin;
  if (type_ == DataType::kFloat64)
    add_exactly<double>(gradient, sum, errors_.data() + part->begin);
  else
    add_exactly<float>(gradient, sum, nullptr);
  return true;
}

}  // namespace yoke::ps::sandblaster
