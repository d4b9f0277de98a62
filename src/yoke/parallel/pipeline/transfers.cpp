#include "yoke/parallel/pipeline/transfers.h"

#include <algorithm>

#include "yoke/base/clock.h"
#include "yoke/base/error.h"
#include "yoke/comm/tensors/tensors.h"

namespace yoke::parallel {
namespace {

constexpr int kMostTensors = 8;  // across one boundary
constexpr int kMostDims = 8;
constexpr int kSpecNumbers = 1 + kMostTensors * (3 + kMostDims);

// One tag for each boundary, direction and tensor; the last one of a direction is for specs.
int tag_of(const Line& line, size_t tensor) {
  int tag = (line.boundary * 2 + (line.gradients ? 1 : 0)) * (kMostTensors + 1) + static_cast<int>(tensor);
  YOKE_CHECK(tag < 65536, "{} virtual stages are too many", line.boundary);
  return tag;
}

comm::OpOptions named(const torch::Tensor& tensor, const std::string& name) {
  comm::OpOptions options;
  options.name = name;
  options.shape = {tensor.sizes().data(), tensor.sizes().size()};
  return options;
}

}  // namespace

BoundarySpec spec_of(const std::vector<torch::Tensor>& tensors) {
  BoundarySpec spec;
  for (const torch::Tensor& one : tensors)
    spec.push_back({one.scalar_type(), one.requires_grad(), one.sizes().vec()});
  return spec;
}

Transfers::~Transfers() {
  auto end = [](const Moving& moving) {
    for (const comm::Pending& one : moving.pending) {
      try {
        one.wait();
      } catch (const std::exception&) {  // told to whoever waited for it before
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
  YOKE_CHECK(spec.size() <= kMostTensors, "{} tensors cross boundary {}", spec.size(), line.boundary);
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
  torch::Tensor message = torch::tensor(numbers, torch::kInt64).to(device_);
  comm::send(comm_, message, line.peer, tag_of(line, kMostTensors), "shapes at a boundary");
}

BoundarySpec Transfers::receive_spec(const Line& line) {
  torch::Tensor message = torch::zeros({kSpecNumbers}, torch::kInt64).to(device_);
  comm::receive(comm_, message, line.peer, tag_of(line, kMostTensors), "shapes at a boundary");
  message = message.cpu();
  const int64_t* at = message.const_data_ptr<int64_t>();
  BoundarySpec spec(static_cast<size_t>(*at++));
  for (TensorSpec& one : spec) {
    one.type = static_cast<torch::ScalarType>(at[0]);
    one.differentiable = at[1] != 0;
    one.sizes.assign(at + 3, at + 3 + at[2]);
    at += 3 + kMostDims;
  }
  return spec;
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

void Transfers::forget_sent() {
  auto sent = [](const Moving& one) {
    return std::all_of(one.pending.begin(), one.pending.end(),
                       [](const comm::Pending& p) { return p.done(); });
  };
  while (!leaving_.empty() && sent(leaving_.front())) {
    for (const comm::Pending& one : leaving_.front().pending) one.wait();  // throws where it failed
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
