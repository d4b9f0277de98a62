#include "yoke/parallel/common/transfers.h"

#include <algorithm>
#include <ranges>

#include "yoke/base/clock.h"
#include "yoke/base/error.h"
#include "yoke/comm/tensors/tensors.h"

namespace yoke::parallel {
namespace {

constexpr int kMostTensors = 24;  // across one boundary
constexpr int kMostDims = 8;
constexpr int64_t kMostElements = int64_t{1} << 40;  // of one tensor
constexpr int kSpecNumbers = 1 + kMostTensors * (3 + kMostDims);

// One tag per boundary, direction and tensor; the last one of a direction is for specs.
int tag_of(const Line& line, size_t tensor) {
  int tag = (line.boundary * 2 + (line.gradients ? 1 : 0)) * (kMostTensors + 1) + static_cast<int>(tensor);
  YOKE_CHECK(line.boundary < Line::kMostBoundaries && tag < 65535, "boundary {} is one too many",
             line.boundary);
  return tag;
}

comm::OpOptions named(const torch::Tensor& tensor, const std::string& name) {
  comm::OpOptions options;
  options.name = name;
  options.shape = {tensor.sizes().data(), tensor.sizes().size()};
  return options;
}

}  // namespace

BoundarySpec read_spec(std::span<const int64_t> numbers, int peer) {
  auto refuse = [&](const char* what, int64_t value) {
    throw CommError("rank {} described tensors at a boundary with {} {}", peer, what, value);
  };
  if (numbers.size() != kSpecNumbers) refuse("numbers:", static_cast<int64_t>(numbers.size()));
  const int64_t* at = numbers.data();
  if (*at < 0 || *at > kMostTensors) refuse("tensors:", *at);
  BoundarySpec spec(static_cast<size_t>(*at++));
  for (TensorSpec& one : spec) {
    if (at[0] < 0 || at[0] >= static_cast<int64_t>(torch::ScalarType::Undefined)) refuse("type", at[0]);
    if (at[2] < 0 || at[2] > kMostDims) refuse("dimensions:", at[2]);
    one.type = static_cast<torch::ScalarType>(at[0]);
    one.differentiable = at[1] != 0;
    one.sizes.assign(at + 3, at + 3 + at[2]);
    int64_t elements = 1;
    for (int64_t size : one.sizes) {
      if (size < 0 || size > kMostElements / std::max<int64_t>(elements, 1)) refuse("a size of", size);
      elements *= size;
    }
    at += 3 + kMostDims;
  }
  return spec;
}

BoundarySpec spec_of(const std::vector<torch::Tensor>& tensors) {
  BoundarySpec spec;
  for (const torch::Tensor& one : tensors)
    spec.push_back({one.scalar_type(), one.requires_grad(), one.sizes().vec()});
  return spec;
}

BoundarySpec differentiable(const BoundarySpec& spec) {
  BoundarySpec some;
  for (const TensorSpec& one : spec)
    if (one.differentiable) some.push_back(one);
  return some;
}

std::vector<int64_t> shape_signature(const std::vector<torch::Tensor>& inputs, int64_t rows, bool training) {
  std::vector<int64_t> shape = {training ? 1 : 0, rows};
  for (const torch::Tensor& one : inputs)
    shape.insert(shape.end(), one.sizes().begin() + (one.dim() > 0 ? 1 : 0), one.sizes().end());
  return shape;
}

Transfers::~Transfers() {
  auto arrived = [](const Moving& moving) {
    return std::ranges::all_of(moving.pending, &comm::Pending::done);
  };
  auto done = [&] {
    return std::ranges::all_of(leaving_, arrived) &&
           std::ranges::all_of(coming_ | std::views::values, arrived);
  };
  give_up_.before_wait(done, "a pipeline step");
  auto end = [](const Moving& moving) {
    for (const comm::Pending& one : moving.pending) {
      try {
        one.wait();
      } catch (const std::exception&) {  // already reported to whoever waited for it
      }
    }
  };
  for (const Moving& one : leaving_) end(one);
  for (const auto& [key, one] : coming_) end(one);
}

void Transfers::send(const Line& line, const Tensors& tensors, const std::string& name) {
  forget_sent();
  Moving moving;
  for (size_t i = 0; i < tensors.size(); ++i) {
    torch::Tensor dense = tensors[i].detach().contiguous();
    moving.pending.push_back(
        comm_.send(comm::buffer_of(dense), line.peer, tag_of(line, i), named(dense, name)));
    moving.tensors.push_back(std::move(dense));
  }
  leaving_.push_back(std::move(moving));
}

void Transfers::send_spec(const Line& line, const BoundarySpec& spec) {
  if (spec.size() > kMostTensors)
    throw ConfigError("{} tensors cross boundary {} of the model; at most {} can. Cut it elsewhere.",
                      spec.size(), line.boundary, kMostTensors);
  std::vector<int64_t> numbers(kSpecNumbers);
  auto at = numbers.begin();
  *at++ = static_cast<int64_t>(spec.size());
  for (const TensorSpec& one : spec) {
    YOKE_CHECK(one.sizes.size() <= kMostDims, "a tensor of {} dimensions crosses boundary {}",
               one.sizes.size(), line.boundary);
    *at++ = static_cast<int64_t>(one.type);
    *at++ = one.differentiable ? 1 : 0;
    *at++ = static_cast<int64_t>(one.sizes.size());
    std::copy(one.sizes.begin(), one.sizes.end(), at);
    at += kMostDims;
  }
  Moving moving;
  moving.tensors.push_back(torch::tensor(numbers, torch::kInt64).to(device_));
  const torch::Tensor& message = moving.tensors[0];
  moving.pending.push_back(comm_.send(comm::buffer_of(message), line.peer, tag_of(line, kMostTensors),
                                      named(message, "shapes at a boundary")));
  leaving_.push_back(std::move(moving));
}

BoundarySpec Transfers::receive_spec(const Line& line) {
  torch::Tensor message = torch::zeros({kSpecNumbers}, torch::kInt64).to(device_);
  comm_
      .receive(comm::buffer_of(message), line.peer, tag_of(line, kMostTensors),
               named(message, "shapes at a boundary"))
      .wait();
  message = message.cpu();
  return read_spec({message.const_data_ptr<int64_t>(), kSpecNumbers}, line.peer);
}

void Transfers::expect(const Key& key, const Line& line, const BoundarySpec& spec, const std::string& name) {
  Moving moving;
  for (size_t i = 0; i < spec.size(); ++i) {
    torch::Tensor place =
        torch::empty(spec[i].sizes, torch::TensorOptions().dtype(spec[i].type).device(device_));
    moving.pending.push_back(
        comm_.receive(comm::buffer_of(place), line.peer, tag_of(line, i), named(place, name)));
    moving.tensors.push_back(std::move(place));
  }
  coming_.emplace(key, std::move(moving));
}

Transfers::Tensors Transfers::take(const Key& key) {
  Stopwatch watch;
  auto found = coming_.find(key);
  YOKE_CHECK(found != coming_.end(), "micro-batch {} was not asked for", std::get<2>(key));
  for (const comm::Pending& one : found->second.pending) one.wait();
  Tensors tensors = std::move(found->second.tensors);
  coming_.erase(found);
  waited_ += watch.seconds();
  return tensors;
}

// Sends are fire and forget for the schedule: completed ones are released here, in order, and their errors
// surface.
void Transfers::forget_sent() {
  auto sent = [](const Moving& one) {
    return std::all_of(one.pending.begin(), one.pending.end(),
                       [](const comm::Pending& p) { return p.done(); });
  };
  while (!leaving_.empty() && sent(leaving_.front())) {
    for (const comm::Pending& one : leaving_.front().pending) one.wait();  // throws if it failed
    leaving_.pop_front();
  }
}

void Transfers::settle(size_t most) {
  Stopwatch watch;
  for (; leaving_.size() > most; leaving_.pop_front())
    for (const comm::Pending& one : leaving_.front().pending) one.wait();
  waited_ += watch.seconds();
}

double Transfers::waited() {
  return std::exchange(waited_, 0);
}

}  // namespace yoke::parallel
