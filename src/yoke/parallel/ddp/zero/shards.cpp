#include "yoke/parallel/ddp/zero/shards.h"

#include <fmt/format.h>

#include <unordered_map>

#include "yoke/base/error.h"
#include "yoke/comm/tensors/tensors.h"
#include "yoke/parallel/ddp/buckets.h"

namespace yoke::parallel {
namespace {

torch::Tensor own_part(const torch::Tensor& flat, const comm::Communicator& comm) {
  int64_t part = flat.numel() / comm.size();
  return flat.narrow(0, part * comm.rank(), part);
}

}  // namespace

std::vector<Piece> pieces_of_rank(const std::vector<std::vector<int64_t>>& plan,
                                  const std::vector<int64_t>& elements, int rank, int ranks) {
  std::vector<Piece> pieces;
  for (size_t bucket = 0; bucket < plan.size(); ++bucket) {
    int64_t whole = 0;
    for (int64_t index : plan[bucket]) whole += elements[static_cast<size_t>(index)];
    int64_t part = std::max<int64_t>(1, (whole + ranks - 1) / ranks);
    int64_t first = part * rank, last = first + part, at = 0;
    for (int64_t index : plan[bucket]) {
      int64_t count = elements[static_cast<size_t>(index)];
      int64_t begin = std::max(first, at), end = std::min(last, at + count);
      if (begin < end)
        pieces.push_back({static_cast<size_t>(index), begin - at, end - at, bucket, begin - first});
      at += count;
    }
  }
  return pieces;
}

Shards::Shards(torch::nn::Module& module, comm::Communicator& comm, const DdpOptions& options) : comm_(comm) {
  torch::NoGradGuard no_grad;
  check_same_model(distinct_parameters(module), distinct_buffers(module), comm);
  give_values(distinct_parameters(module), comm, 0);
  give_values(distinct_buffers(module), comm, 0);
  std::vector<GradientSize> sizes;
  std::vector<int64_t> order, elements;
  for (const auto& [name, parameter] : distinct_parameters(module)) {
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

std::vector<torch::Tensor> Shards::assemble(const std::vector<torch::Tensor>& parts, int root) const {
  torch::NoGradGuard no_grad;
  std::vector<torch::Tensor> wholes(parameters_.size());
  for (size_t b = 0; b < flats_.size(); ++b) {
    torch::Tensor here = parts[b].contiguous(), all;
    if (comm_.rank() == root) all = torch::empty({flats_[b].numel()}, here.options());
    comm::Buffer into =
        comm_.rank() == root ? comm::buffer_of(all) : comm::Buffer(nullptr, 0, comm::buffer_of(here).type);
    comm_.gather(comm::buffer_of(here), into, root, {.name = "parts of the state"}).wait();
    if (comm_.rank() != root) continue;
    int64_t offset = 0;
    for (int64_t index : layout_.plan[b]) {
      auto i = static_cast<size_t>(index);
      wholes[i] = place_in(all, offset, parameters_[i].second);
      offset += parameters_[i].second.numel();
    }
  }
  return wholes;
}

torch::Tensor Shards::run_of(size_t parameter, const torch::Tensor& whole) const {
  const torch::Tensor& like = parameters_[parameter].second;
  torch::Tensor laid_out = torch::empty_strided(like.sizes(), like.strides(), whole.options());
  laid_out.copy_(whole);
  return laid_out.as_strided({like.numel()}, {1});
}

}  // namespace yoke::parallel
