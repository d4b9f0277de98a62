// Sets of tensors on their way between stages: sends that run on, receives that are asked for ahead of need.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "yoke/comm/communicator.h"

namespace yoke::parallel {

// One tensor of those that cross a boundary.
struct TensorSpec {
  torch::ScalarType type = torch::kFloat32;
  bool differentiable = false;  // its gradient comes back
  std::vector<int64_t> sizes;
  bool operator==(const TensorSpec&) const = default;
};
using BoundarySpec = std::vector<TensorSpec>;

BoundarySpec spec_of(const std::vector<torch::Tensor>& tensors);

// A boundary between two virtual stages, seen from one end.
struct Line {
  int peer = 0;
  int boundary = 0;  // number of the virtual stage behind it
  bool gradients = false;
};

// Not thread-safe. What is said here must be asked for there in the same order, line by line.
class Transfers {
 public:
  using Tensors = std::vector<torch::Tensor>;
  using Key = std::tuple<bool, int, int>;  // gradients, boundary, micro-batch

  Transfers(comm::Communicator& comm, torch::Device device) : comm_(comm), device_(device) {}
  Transfers(const Transfers&) = delete;
  Transfers& operator=(const Transfers&) = delete;
  ~Transfers();  // waits: memory must stay while data moves

  // Returns at once; the tensors are kept until they have left. `name` shows in errors.
  void send(const Line& line, const Tensors& tensors, const std::string& name);
  // What the tensors of this line look like, before the first ones come.
  void send_spec(const Line& line, const BoundarySpec& spec);
  BoundarySpec receive_spec(const Line& line);

  // Memory for tensors like `spec` is filled from now on.
  void expect(const Key& key, const Line& line, const BoundarySpec& spec, const std::string& name);
  bool expected(const Key& key) const { return coming_.count(key) > 0; }
  // Waits for what was expected.
  Tensors take(const Key& key);

  // Waits until at most `most` sets are still on their way out.
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
  std::deque<Moving> leaving_;
  std::map<Key, Moving> coming_;
  double waited_ = 0;
};

}  // namespace yoke::parallel
