#include "yoke/comm/tensors/tensors.h"

#include <ATen/core/grad_mode.h>

#include <numeric>

#include "yoke/base/error.h"

namespace yoke::comm {
namespace {

OpOptions options_of(const torch::Tensor& tensor, std::string_view name) {
  OpOptions options;
  options.name = name;
  options.shape = {tensor.sizes().data(), tensor.sizes().size()};
  return options;
}

// The tensor, contiguous, in memory that the communicator can move. NCCL moves device memory only: host
// tensors (a few numbers that ranks agree on) go through the current GPU. GPU tensors on a host backend are
// refused: copying them to the host and back would be slow without a word.
torch::Tensor movable(const Communicator& comm, const torch::Tensor& tensor) {
  const bool wants_cuda = comm.backend() == "nccl";
  if (wants_cuda && tensor.is_cpu()) return tensor.contiguous().to(torch::kCUDA);
  if (tensor.is_cuda() == wants_cuda && (wants_cuda || tensor.is_cpu())) return tensor.contiguous();
  throw ConfigError(
      "group '{}' moves {} memory (backend {}), but the tensor is on {}. Move it, or use another backend.",
      comm.name(), wants_cuda ? "GPU" : "host", comm.backend(), tensor.device().str());
}

int64_t rows_of(const torch::Tensor& tensor) {
  return tensor.dim() == 0 ? 1 : tensor.size(0);
}

std::vector<int64_t> with_rows(const torch::Tensor& tensor, int64_t rows) {
  std::vector<int64_t> sizes = tensor.sizes().vec();
  if (sizes.empty()) sizes.push_back(1);
  sizes[0] = rows;
  return sizes;
}

void check_divisible(const Communicator& comm, const torch::Tensor& tensor, const char* operation) {
  if (tensor.dim() > 0 && tensor.size(0) % comm.size() == 0) return;
  throw ConfigError("{} on group '{}': the first dimension of {} cannot be divided into {} equal parts.",
                    operation, comm.name(), c10::str(tensor.sizes()), comm.size());
}

// Runs `operation` on contiguous memory and copies the result to `tensor` if necessary.
template <class Operation>
void in_place(Communicator& comm, torch::Tensor& tensor, Operation&& operation) {
  at::NoGradGuard no_grad;
  torch::Tensor dense = movable(comm, tensor);
  operation(buffer_of(dense));
  if (!dense.is_same(tensor)) tensor.copy_(dense);
}

}  // namespace

DataType data_type_of(torch::ScalarType type) {
  switch (type) {
    case torch::kFloat32:
      return DataType::kFloat32;
    case torch::kFloat64:
      return DataType::kFloat64;
    case torch::kFloat16:
      return DataType::kFloat16;
    case torch::kBFloat16:
      return DataType::kBFloat16;
    case torch::kInt8:
      return DataType::kInt8;
    case torch::kUInt8:
      return DataType::kUint8;
    case torch::kInt16:
      return DataType::kInt16;
    case torch::kInt32:
      return DataType::kInt32;
    case torch::kInt64:
      return DataType::kInt64;
    default:
      break;
  }
  throw ConfigError(
      "tensors of type {} are not supported. Accepted: float32, float64, float16, bfloat16, int8, uint8, "
      "int16, int32, int64.",
      c10::toString(type));
}

Buffer buffer_of(const torch::Tensor& tensor) {
  if (!tensor.defined() || !tensor.is_contiguous())
    throw ConfigError("a tensor {} cannot be used as a buffer. Call contiguous().",
                      tensor.defined() ? "that is not contiguous" : "that is not defined");
  return {tensor.data_ptr(), tensor.numel(), data_type_of(tensor.scalar_type())};
}

void all_reduce(Communicator& comm, torch::Tensor tensor, ReduceOp op, std::string_view name) {
  in_place(comm, tensor, [&](Buffer data) { comm.all_reduce(data, op, options_of(tensor, name)).wait(); });
}

void reduce(Communicator& comm, torch::Tensor tensor, int root, ReduceOp op, std::string_view name) {
  in_place(comm, tensor, [&](Buffer data) { comm.reduce(data, root, op, options_of(tensor, name)).wait(); });
}

void broadcast(Communicator& comm, torch::Tensor tensor, int root, std::string_view name) {
  in_place(comm, tensor, [&](Buffer data) { comm.broadcast(data, root, options_of(tensor, name)).wait(); });
}

torch::Tensor all_gather(Communicator& comm, const torch::Tensor& tensor, std::string_view name,
                         const std::vector<int64_t>& rows) {
  at::NoGradGuard no_grad;
  torch::Tensor dense = movable(comm, tensor);
  int64_t all =
      rows.empty() ? rows_of(dense) * comm.size() : std::accumulate(rows.begin(), rows.end(), int64_t{0});
  torch::Tensor out = torch::empty(with_rows(dense, all), dense.options().requires_grad(false));
  int64_t row = 1;
  for (int64_t d = 1; d < dense.dim(); d++) row *= dense.size(d);
  std::vector<int64_t> counts(rows);
  for (int64_t& count : counts) count *= row;
  comm.all_gather(buffer_of(dense), buffer_of(out), counts, options_of(out, name)).wait();
  return out.to(tensor.device());
}

torch::Tensor reduce_scatter(Communicator& comm, const torch::Tensor& tensor, ReduceOp op,
                             std::string_view name) {
  check_divisible(comm, tensor, "reduce_scatter");
  at::NoGradGuard no_grad;
  torch::Tensor dense = movable(comm, tensor);
  torch::Tensor out =
      torch::empty(with_rows(dense, dense.size(0) / comm.size()), dense.options().requires_grad(false));
  comm.reduce_scatter(buffer_of(dense), buffer_of(out), op, options_of(dense, name)).wait();
  return out.to(tensor.device());
}

torch::Tensor all_to_all(Communicator& comm, const torch::Tensor& tensor, std::string_view name) {
  check_divisible(comm, tensor, "all_to_all");
  at::NoGradGuard no_grad;
  torch::Tensor dense = movable(comm, tensor);
  torch::Tensor out = torch::empty_like(dense);
  comm.all_to_all(buffer_of(dense), buffer_of(out), options_of(dense, name)).wait();
  return out.to(tensor.device());
}

void send(Communicator& comm, const torch::Tensor& tensor, int peer, int tag, std::string_view name) {
  torch::Tensor dense = movable(comm, tensor);
  comm.send(buffer_of(dense), peer, tag, options_of(dense, name)).wait();
}

void receive(Communicator& comm, torch::Tensor tensor, int peer, int tag, std::string_view name) {
  in_place(comm, tensor,
           [&](Buffer data) { comm.receive(data, peer, tag, options_of(tensor, name)).wait(); });
}

}  // namespace yoke::comm
