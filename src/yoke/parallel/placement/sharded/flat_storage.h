// Memory under parameters that comes and goes.
//
// Parameters are views of one storage object for their whole life. Its memory is given back and replaced in
// place, so that tensors that autograd has saved see the new memory too.
#pragma once

#include <torch/types.h>

#include "yoke/comm/buffer.h"

namespace yoke::parallel {

class FlatStorage {
 public:
  FlatStorage(int64_t elements, torch::ScalarType type, torch::Device device);

  void fill(const comm::Memory& memory);  // Requires: as many bytes at least
  void free();                            // reading a view is an error until the next fill()
  bool present() const { return present_; }

  torch::Tensor flat() const;  // [elements]
  // A view at `offset`, laid out as `like` is.
  torch::Tensor place(int64_t offset, const torch::Tensor& like) const;

  // What tensors over this memory have in common.
  const c10::StorageImpl* key() const { return storage_.unsafeGetStorageImpl(); }
  int64_t bytes() const { return static_cast<int64_t>(storage_.nbytes()); }
  torch::TensorOptions options() const { return options_; }

 private:
  torch::TensorOptions options_;
  int64_t elements_;
  c10::Storage storage_;
  bool present_ = false;
};

}  // namespace yoke::parallel
