#include "yoke/comm/nccl/nccl_staging.h"

#include <algorithm>

#include "yoke/comm/nccl/nccl_group.h"

namespace yoke::comm::nccl {

std::shared_ptr<void> device_memory(size_t bytes) {
  void* data = nullptr;
  check(cudaMalloc(&data, std::max(bytes, size_t{1})), "cudaMalloc");
  return {data, cudaFree};
}

void* Block::at_least(size_t bytes) {
  if (!data_ || bytes_ < bytes) {
    bytes_ = std::max(bytes, size_t{4096});
    data_ = device_memory(bytes_);
  }
  return data_.get();
}

bool on_device(const void* data) {
  cudaPointerAttributes attributes{};
  check(cudaPointerGetAttributes(&attributes, data), "cudaPointerGetAttributes");
  return attributes.type == cudaMemoryTypeDevice || attributes.type == cudaMemoryTypeManaged;
}

Operation Staging::in(const Operation& operation, cudaStream_t stream) {
  Operation staged = operation;
  auto stage = [&](Block& block, const void* host, size_t bytes) {
    void* device = block.at_least(bytes);
    check(cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, stream), "cudaMemcpyAsync");
    return device;
  };
  const Buffer& output = operation.output;
  const ConstBuffer& input = operation.input;
  result_ = nullptr;
  if (output.bytes() > 0 && !on_device(output.data))
    staged.output.data = result_ = stage(output_, output.data, output.bytes());
  if (input.data == output.data)
    staged.input.data = staged.output.data;
  else if (input.bytes() > 0 && !on_device(input.data))
    staged.input.data = stage(input_, input.data, input.bytes());
  return staged;
}

void Staging::out(const Operation& operation, cudaStream_t stream) {
  if (result_ == nullptr) return;
  check(cudaMemcpyAsync(operation.output.data, result_, operation.output.bytes(), cudaMemcpyDeviceToHost,
                        stream),
        "cudaMemcpyAsync");
  check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
}

}  // namespace yoke::comm::nccl
