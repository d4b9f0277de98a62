// Sets of tensors in flight between parts of a model: asynchronous sends, and receives posted ahead of need.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <deque>
#include <map>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "yoke/comm/communicator.h"
#include "yoke/comm/give_up.h"

namespace yoke::parallel {

// One of the tensors that cross a boundary.
struct TensorSpec {
  torch::ScalarType type = torch::kFloat32;
  bool differentiable = false;  // its gradient is sent back
  std::vector<int64_t> sizes;
  bool operator==(const TensorSpec&) const = default;
};
using BoundarySpec = std::vector<TensorSpec>;

BoundarySpec spec_of(const std::vector<torch::Tensor>& tensors);
// The tensors whose gradients are sent back.
BoundarySpec differentiable(const BoundarySpec& spec);
// What determines the shapes of all tensors in the model: `inputs` with `rows` rows, and the mode.
std::vector<int64_t> shape_signature(const std::vector<torch::Tensor>& inputs, int64_t rows, bool training);
// Parses what Transfers::send_spec() sent on rank `peer`. Throws CommError for invalid numbers.
BoundarySpec read_spec(std::span<const int64_t> numbers, int peer);

// A boundary between two virtual stages, or what a node of a graph gives to another rank, seen from one end.
struct Line {
  // Boundaries are numbered below this.
  static constexpr int kMostBoundaries = 1300;

  int peer = 0;
  int boundary = 0;  // index of the virtual stage behind it, or of the node
  bool gradients = false;
};

// Not thread-safe. What one end sends the other must expect in the same order, per line.
class Transfers {
 public:
  using Tensors = std::vector<torch::Tensor>;
  using Key = std::tuple<bool, int, int>;  // gradients, boundary, micro-batch (of a node: peer)

  Transfers(comm::Communicator& comm, torch::Device device) : comm_(comm), device_(device), give_up_(comm) {}
  Transfers(const Transfers&) = delete;
  Transfers& operator=(const Transfers&) = delete;
  // Waits, because memory must stay while data moves; during unwinding it abandons the communicator first.
  ~Transfers();

  // Non-blocking; keeps the tensors until they are sent. `name` is shown in errors.
  void send(const Line& line, const Tensors& tensors, const std::string& name);
  // Exchange the shapes of this line's tensors before the first ones. Sending returns at once. Throws
  // ConfigError for more tensors than a line can have.
  void send_spec(const Line& line, const BoundarySpec& spec);
  BoundarySpec receive_spec(const Line& line);

  // Posts a receive into new memory for tensors like `spec`.
  void expect(const Key& key, const Line& line, const BoundarySpec& spec, const std::string& name);
  bool expected(const Key& key) const { return coming_.count(key) > 0; }
  // Waits for an expected set.
  Tensors take(const Key& key);

  // Waits until at most `most` sets are still being sent.
  void settle(size_t most = 0);
  // Seconds spent in take() and settle() since the last call.
  double waited();

 private:
  struct Moving {
    Tensors tensors;
    std::vector<comm::Pending> pending;
  };
  void forget_sent();

  comm::Communicator& comm_;
  torch::Device device_;
  comm::GiveUpOnException give_up_;
  std::deque<Moving> leaving_;
  std::map<Key, Moving> coming_;
  double waited_ = 0;
};

}  // namespace yoke::parallel
