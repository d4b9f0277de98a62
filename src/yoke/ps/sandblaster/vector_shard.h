// One server's slices of the vectors of L-BFGS, and the sum of the gradients of portions.
//
// The sum does not depend on the order of portions: fp32 gradients are added in fp64, fp64 ones with a
// compensation of the rounding errors (Neumaier). Numbers are summed in fp64, in element order. Throws
// CommError for arguments out of range, before anything is changed. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "yoke/base/data_type.h"
#include "yoke/ps/sandblaster/messages.h"
#include "yoke/ps/sharding.h"

namespace yoke::ps::sandblaster {

class VectorShard {
 public:
  VectorShard() = default;
  VectorShard(const Sharding& sharding, int server, DataType type, int64_t vectors);

  bool has(int64_t range) const;
  // Memory of a range of a vector. Requires has(range).
  std::span<std::byte> slice(int64_t vector, int64_t range);

  // The server's part of the result: combine parts with max for kMaxAbs, else with plus.
  double run(const CommandHead& command);

  // Adds the gradient of a portion, once. False: it came before, or its evaluation is over.
  bool add_portion(const PortionHead& head, std::span<const std::byte> gradient);

  int64_t evaluation() const { return evaluation_; }
  int64_t vectors() const { return vectors_; }
  size_t bytes_held() const;

 private:
  struct Part {
    int64_t range = 0;
    int64_t begin = 0;  // element of the slices
    int64_t count = 0;
    std::vector<bool> taken{};  // by portion
  };
  Part* part_of(int64_t range);
  void check_vector(int64_t vector) const;
  void begin(int64_t evaluation, int64_t portions);
  void end();
  template <class T>
  T* data(int64_t vector);
  template <class T>
  double operate(const CommandHead& command);

  DataType type_ = DataType::kFloat64;
  int64_t vectors_ = 0;
  int64_t elements_ = 0;
  std::vector<Part> parts_;           // by range
  std::vector<std::byte> memory_;     // the slices, one after the other
  std::vector<double> sum_, errors_;  // of portions; errors_: fp64 only
  int64_t evaluation_ = 0;
  int64_t portions_ = 0;
};

}  // namespace yoke::ps::sandblaster
