#include "yoke/parallel/sync/sharded/shards.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "yoke/base/error.h"
#include "yoke/comm/tensors/tensors.h"
#include "yoke/parallel/common/ddp/buckets.h"

namespace yoke::parallel {
namespace {

torch::Tensor own_part(const torch::Tensor& flat, const comm::Communicator& comm) {
  int64_t part = flat.numel() / comm.size();
  return flat.narrow(0, part * comm.rank(), part);
}

}  // namespace

Shards::Shards(torch::nn::Module& module, comm::Communicator& comm, const DdpOptions& options)
    : Shards(distinct_parameters(module), distinct_buffers(module), comm, options) {}

Shards::Shards(const NamedTensors& all, const NamedTensors& buffers, comm::Communicator& comm,
               const DdpOptions& options)
    : comm_(comm), give_up_(comm) {
  torch::NoGradGuard no_grad;
  check_same_model(all, buffers, comm);
  give_values(all, comm, 0);
  give_values(buffers, comm, 0);
  std::vector<GradientSize> sizes;
  std::vector<int64_t> order, elements;
  for (const auto& [name, parameter] : all) {
    if (!parameter.requires_grad()) continue;
    parameters_.emplace_back(name, parameter);
    sizes.push_back({parameter.numel(), parameter.scalar_type(), parameter.device()});
    elements.push_back(parameter.numel());
  }
  // Backward needs the last first, near enough.
  for (auto index = static_cast<int64_t>(parameters_.size()) - 1; index >= 0; --index) order.push_back(index);
  layout_.plan = plan_buckets(sizes, order, {options.first_bucket_bytes, options.bucket_bytes});
  layout_.multiple = comm.size();
  bucket_of_.resize(parameters_.size());

  std::vector<Slot> slots;
  for (const auto& [name, parameter] : parameters_) slots.push_back({name, parameter, {}});
  auto allocate = [&](size_t bytes) {
    comm::Memory common = options.share_parameters ? comm.allocate_common(bytes) : comm::Memory{};
    in_common_ = common.data != nullptr;
    return in_common_ ? common : comm.allocate(bytes);
  };
  for (Bucket& bucket : make_buckets(slots, layout_, comm, allocate)) flats_.push_back(bucket.data.flat);
  for (size_t i = 0; i < slots.size(); ++i) {
    bucket_of_[i] = slots[i].bucket;
    if (!in_common_ || comm.rank() == 0) slots[i].view.copy_(slots[i].parameter);
    slots[i].parameter.set_data(slots[i].view);
  }
  if (in_common_) comm.barrier({.name = "parameters in common"}).wait();
  pieces_ = pieces_of_rank(layout_.plan, elements, comm.rank(), comm.size());
  for (const Piece& piece : pieces_)
    owned_.emplace_back(
        fmt::format("{}@{}:{}", parameters_[piece.parameter].first, piece.begin, piece.end),
        own_part(flats_[piece.bucket], comm).narrow(0, piece.offset, piece.end - piece.begin).detach());
  if (owned_.empty() && !flats_.empty())
    owned_.emplace_back("padding", own_part(flats_[0], comm).narrow(0, 0, 1).detach());
  gathering_.resize(flats_.size());
}

Shards::~Shards() {
  give_up_.before_wait([&] { return std::ranges::all_of(gathering_, &comm::Pending::done); },
                       "a step with sharded parameters");
  for (const comm::Pending& one : gathering_) {
    try {
      one.wait();
    } catch (const std::exception&) {  // told to whoever waited for it before
    }
  }
}

void Shards::begin_gather() {
  wait_for_all();
  if (in_common_) {
    gathering_[0] = comm_.barrier({.name = "parameters"});
    return;
  }
  for (size_t i = flats_.size(); i-- > 0;) {
    std::string name = fmt::format("parameters {}", i);
    gathering_[i] = comm_.all_gather(comm::buffer_of(own_part(flats_[i], comm_)), comm::buffer_of(flats_[i]),
                                     {}, {.name = name});
  }
}

void Shards::wait(size_t bucket) {
  comm::Pending& gathering = gathering_[in_common_ ? 0 : bucket];
  gathering.wait();
  gathering = {};
}

void Shards::wait_for_all() {
  for (size_t i = flats_.size(); i-- > 0;) wait(i);
}

std::vector<size_t> Shards::buckets_of(const std::vector<std::shared_ptr<torch::nn::Module>>& modules) const {
  std::unordered_map<const void*, size_t> known;
  for (size_t i = 0; i < parameters_.size(); ++i)
    known[parameters_[i].second.unsafeGetTensorImpl()] = bucket_of_[i];
  std::vector<size_t> buckets;
  for (const auto& module : modules)
    for (const torch::Tensor& parameter : module->parameters())
      if (auto found = known.find(parameter.unsafeGetTensorImpl()); found != known.end())
        if (std::find(buckets.begin(), buckets.end(), found->second) == buckets.end())
          buckets.push_back(found->second);
  return buckets;
}

torch::Tensor Shards::run_of(size_t parameter, const torch::Tensor& whole) const {
  return parallel::run_of(parameters_[parameter].second, whole);
}

}  // namespace yoke::parallel
