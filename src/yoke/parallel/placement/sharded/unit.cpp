#include "yoke/parallel/placement/sharded/unit.h"

#include <fmt/format.h>
#include <torch/utils.h>

#include <utility>

#include "yoke/base/error.h"
#include "yoke/comm/tensors/tensors.h"
#include "yoke/parallel/common/ddp/buckets.h"
#include "yoke/parallel/sync/sharded/piece_source.h"

namespace yoke::parallel {
namespace {

int64_t elements_in(const UnitPlan& plan, const NamedTensors& parameters) {
  int64_t elements = 0;
  for (size_t index : plan.parameters) elements += parameters[index].second.numel();
  return elements;
}

int64_t even_part(int64_t elements, int ranks) {
  return std::max<int64_t>(1, (elements + ranks - 1) / ranks);
}

torch::Device device_of(const UnitPlan& plan, const NamedTensors& parameters) {
  return parameters[plan.parameters[0]].second.device();
}

void wait_quietly(const comm::Pending& pending) {
  try {
    pending.wait();
  } catch (const std::exception&) {  // told to whoever waited for it before
  }
}

}  // namespace

Unit::Unit(const UnitPlan& plan, size_t number, const NamedTensors& parameters, comm::Communicator& comm,
           MemoryPool& pool, const FullyShardOptions& options)
    : name_(plan.name),
      number_(number),
      comm_(comm),
      pool_(pool),
      filled_(elements_in(plan, parameters)),
      part_(even_part(filled_, comm.size())),
      trained_(plan.trained),
      average_(options.average),
      storage_(part_ * comm.size(), plan.gather_type, device_of(plan, parameters)),
      reduced_as_(storage_.options().dtype(comm.size() > 1 ? options.reduce_type.value_or(plan.gather_type)
                                                           : plan.gather_type)) {
  torch::NoGradGuard no_grad;
  torch::TensorOptions wide = parameters[plan.parameters[0]].second.options().requires_grad(false);
  bool narrow = c10::typeMetaToScalarType(wide.dtype()) != plan.gather_type;
  bool offload = options.offload != "none";
  comm::Memory common;
  if (comm.size() == 1 && !offload)
    common = comm.allocate(static_cast<size_t>(storage_.bytes()));
  else if (options.share && !offload)
    common = comm.allocate_common(static_cast<size_t>(storage_.bytes()));
  resident_ = common.data != nullptr;
  if (resident_) storage_.fill(common);
  auto bytes = static_cast<size_t>(part_) * wide.dtype().itemsize();
  if (resident_ && !narrow)
    shard_ = own_part(tensor_over(common, part_ * comm.size(), wide));
  else if (offload)
    shard_ = torch::empty({part_}, wide.device(torch::kCPU).pinned_memory(true));
  else
    shard_ = tensor_over(comm.allocate(bytes), part_, wide);

  torch::Tensor whole = torch::zeros({part_ * comm.size()}, wide);
  int64_t offset = 0;
  for (size_t index : plan.parameters) {
    const auto& [name, parameter] = parameters[index];
    place_in(whole, offset, parameter).copy_(parameter);
    offsets_.push_back(offset);
    torch::Tensor view = storage_.place(offset, parameter);
    offset += parameter.numel();
    torch::Tensor(parameter).set_data(view);
    parameters_.emplace_back(name, parameter);
  }
  shard_.copy_(own_part(whole));
  if (options.offload == "optimizer") near_ = torch::empty({part_}, wide);
  refresh();
}

Unit::~Unit() {
  wait_quietly(gathering_);
  wait_quietly(reducing_);
}

torch::Tensor Unit::own_part(const torch::Tensor& flat) const {
  return flat.narrow(0, part_ * comm_.rank(), part_);
}

void Unit::refresh() {
  torch::NoGradGuard no_grad;
  if (near_.defined()) near_.copy_(shard_, /*non_blocking=*/true);
  if (resident_ && shard_.scalar_type() != c10::typeMetaToScalarType(storage_.options().dtype()))
    own_part(storage_.flat()).copy_(shard_);
}

void Unit::begin_gather() {
  if (resident_ || gather_memory_.data) return;
  torch::NoGradGuard no_grad;
  gather_memory_ = pool_.take(storage_.bytes());
  torch::Tensor flat = tensor_over(gather_memory_, part_ * comm_.size(), storage_.options());
  const torch::Tensor& from = near_.defined() ? near_ : shard_;
  torch::Tensor own = from;
  // Peers read the shard where it lies, unless it must be converted or brought to the device.
  if (from.scalar_type() != flat.scalar_type() || from.device() != flat.device()) {
    own = own_part(flat);
    own.copy_(from, /*non_blocking=*/true);
  }
  std::string name = fmt::format("parameters of {} {}", number_, name_);
  gathering_ = comm_.all_gather(comm::buffer_of(own), comm::buffer_of(flat), {}, {.name = name});
}

void Unit::gather() {
  if (storage_.present()) return;
  begin_gather();
  gathering_.wait();
  gathering_ = {};
  storage_.fill(gather_memory_);
}

void Unit::release() {
  if (resident_ || !gather_memory_.data) return;
  std::exchange(gathering_, {}).wait();
  storage_.free();
  pool_.give(std::exchange(gather_memory_, {}));
}

// What backward() made of every parameter, one behind the other.
void Unit::fill_gradients(const torch::Tensor& flat) {
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const torch::Tensor& parameter = parameters_[i].second;
    torch::Tensor gradient = std::exchange(parameter.mutable_grad(), torch::Tensor());
    torch::Tensor place = place_in(flat, offsets_[i], parameter);
    if (gradient.defined() && gradient.is_sparse())
      throw ConfigError("fully_shard: the gradient of {} is sparse. Make its layer without sparse gradients.",
                        parameters_[i].first);
    if (!gradient.defined())
      place.zero_();
    else if (cast() && average_)  // quotients, so that sums overflow no earlier than one rank's gradient
      torch::div_out(place, gradient, torch::scalar_to_tensor(static_cast<double>(comm_.size())));
    else if (gradient.data_ptr() != place.data_ptr())
      place.copy_(gradient);
  }
  flat.narrow(0, filled_, flat.numel() - filled_).zero_();
}

torch::Tensor Unit::gradients() {
  const int64_t count = part_ * comm_.size();
  if (!reduce_memory_.data)
    reduce_memory_ = pool_.take(count * static_cast<int64_t>(reduced_as_.dtype().itemsize()));
  return tensor_over(reduce_memory_, count, reduced_as_);
}

void Unit::make_homes(compute::GradientHomes& homes) {
  if (reduce_memory_.data || cast()) return;
  torch::Tensor flat = gradients();
  for (size_t i = 0; i < parameters_.size(); ++i) {
    torch::Tensor place = place_in(flat, offsets_[i], parameters_[i].second);
    if (place.is_contiguous()) homes.set(parameters_[i].second, place);
  }
}

void Unit::begin_reduce(compute::GradientHomes& homes) {
  torch::NoGradGuard no_grad;
  YOKE_CHECK(!reduces_, "unit {} is reduced already", name_);
  for (const auto& [name, parameter] : parameters_) homes.remove(parameter);
  torch::Tensor flat = gradients();
  fill_gradients(flat);
  reduces_ = true;
  if (comm_.size() == 1) return;
  std::string name = fmt::format("gradients of {} {}", number_, name_);
  reducing_ = comm_.reduce_scatter(comm::buffer_of(flat), comm::buffer_of(own_part(flat)),
                                   cast() || !average_ ? ReduceOp::kSum : ReduceOp::kMean, {.name = name});
}

torch::Tensor Unit::finish_reduce() {
  reducing_.wait();
  return own_part(gradients());
}

void Unit::drop_reduced() {
  reducing_ = {};
  reduces_ = false;
  pool_.give(std::exchange(reduce_memory_, {}));
}

std::vector<torch::Tensor> Unit::assemble(const torch::Tensor& part) {
  torch::NoGradGuard no_grad;
  torch::Tensor mine = part.to(storage_.options().device());
  torch::Tensor whole = comm_.size() == 1 ? mine : comm::all_gather(comm_, mine, "whole tensors");
  std::vector<torch::Tensor> all;
  for (size_t i = 0; i < parameters_.size(); ++i)
    all.push_back(place_in(whole, offsets_[i], parameters_[i].second).clone());
  return all;
}

void Unit::load(const std::map<std::string, torch::Tensor>& whole) {
  torch::NoGradGuard no_grad;
  int64_t first = part_ * comm_.rank(), last = first + part_;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const auto& [name, parameter] = parameters_[i];
    auto found = whole.find(name);
    int64_t begin = std::max(first, offsets_[i]), end = std::min(last, offsets_[i] + parameter.numel());
    if (found == whole.end() || begin >= end) continue;
    torch::Tensor run = run_of(parameter, found->second.view(parameter.sizes()));
    shard_.narrow(0, begin - first, end - begin).copy_(run.narrow(0, begin - offsets_[i], end - begin));
  }
}

}  // namespace yoke::parallel
