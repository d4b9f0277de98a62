// Gradients of minibatches that wait, on a server, until their update has all of them.
//
// The gradient of a minibatch comes in parts: messages with ascending keys of one table each. Its identity is
// worker, life and minibatch, so a resend changes nothing. Not thread-safe.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <tuple>
#include <vector>

#include "yoke/ps/archive.h"
#include "yoke/ps/sparse/wire.h"

namespace yoke::ps::sparse {

struct HeldPart {
  int table = 0;
  std::vector<Key> keys;
  std::vector<std::byte> values;  // of the table's type
};

struct HeldGradient {
  std::vector<std::optional<HeldPart>> parts;
  size_t arrived = 0;
  size_t bytes = 0;
  double scale = 1;
  bool measure = false;
  bool complete() const { return !parts.empty() && arrived == parts.size(); }
};

class HeldGradients {
 public:
  using Name = std::tuple<int, int64_t, int64_t>;        // worker, life, minibatch
  static constexpr size_t kMostBytes = size_t{1} << 30;  // per worker

  explicit HeldGradients(int workers) : bytes_(static_cast<size_t>(workers), 0) {}

  // Whether this part is here already. Throws CommError if it contradicts the other parts.
  bool has(const Name& name, const PushTableHead& head) const;
  // Requires !has(). Throws CommError if the worker has too much waiting, or if the keys of a table do not
  // ascend from part to part; nothing is kept then.
  void add(const Name& name, const PushTableHead& head, HeldPart part);
  // nullptr: not complete.
  const HeldGradient* find(const Name& name) const;
  void erase(const Name& name);
  // What a worker has sent but no update has named.
  void erase_incomplete(int worker);
  void clear();
  size_t bytes() const;
  // All of them. load() throws CommError if something does not fit; `arrived` of the parts is counted again.
  void save(Saver& saver) const;
  void load(Loader& loader, const std::function<size_t(int table)>& row_bytes);

 private:
  std::map<Name, HeldGradient> held_;
  std::vector<size_t> bytes_;  // by worker
};

// The sum of gradients of a table, in the order of add(): keys ascend.
class SparseSum {
 public:
  SparseSum(DataType type, int64_t width) : type_(type), width_(width) {}
  void add(std::span<const Key> keys, std::span<const std::byte> values, double scale);
  std::span<const Key> keys() const { return keys_; }
  const std::byte* values() const { return values_.data(); }
  // Sum of squares of `weight` * sum.
  double square(double weight) const;

 private:
  DataType type_;
  int64_t width_;
  std::vector<Key> keys_;
  std::vector<std::byte> values_;
};

}  // namespace yoke::ps::sparse
