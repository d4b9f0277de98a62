// Sees every operation of a thread before it reads its tensors: how a module without hooks is gathered.
//
// LibTorch's C++ modules call operations directly. A fallback on a dispatch key above all others looks at the
// storage of every tensor argument. Backward is seen too: what autograd has saved of a parameter has the
// parameter's storage. Kernels that are called past the dispatcher are not seen.
#pragma once

#include <c10/core/StorageImpl.h>

#include <functional>
#include <vector>

namespace yoke::parallel {

class Interceptor {
 public:
  // Called with the positions in `storages` that an operation is about to read, each once.
  using BeforeRead = std::function<void(const std::vector<size_t>&)>;

  // For the thread that makes it, and for backward passes that it starts, until it is destroyed in the same
  // thread.
  Interceptor(const std::vector<const c10::StorageImpl*>& storages, BeforeRead before_read);
  ~Interceptor();
  Interceptor(const Interceptor&) = delete;
  Interceptor& operator=(const Interceptor&) = delete;

  struct Owner {
    BeforeRead before_read;
  };

 private:
  std::vector<const c10::StorageImpl*> storages_;
  Owner owner_;
};

}  // namespace yoke::parallel
