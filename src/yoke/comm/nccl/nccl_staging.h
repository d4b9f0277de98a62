// Host memory where NCCL wants device memory. Part of the module only.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>

#include "yoke/comm/operation.h"

namespace yoke::comm::nccl {

std::shared_ptr<void> device_memory(size_t bytes);

// Device memory that is kept for the next one who needs no more than there is.
class Block {
 public:
  void* at_least(size_t bytes);

 private:
  std::shared_ptr<void> data_;
  size_t bytes_ = 0;
};

// Whether kernels can reach what lies there. False for all host memory, also the pinned.
bool on_device(const void* data);

// An operation whose host buffers are replaced by memory on the device. Takes what it stands for there, in
// the order of `stream`.
class Staging {
 public:
  Operation in(const Operation& operation, cudaStream_t stream);
  // Behind the operation: what it wrote, back to where the caller expects it. Waits where there is something
  // to bring.
  void out(const Operation& operation, cudaStream_t stream);

 private:
  Block input_, output_;
  void* result_ = nullptr;  // stands for the output; null where that is on the device
};

}  // namespace yoke::comm::nccl
