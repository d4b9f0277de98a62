#include "yoke/comm/nccl/nccl.h"

#include "yoke/comm/modules/module.h"

namespace yoke::comm {
namespace {

template <class Function>
Function entry(const char* name, const std::string& folder) {
  void* address =
      open_module("libyoke_nccl.so", folder, name, module_stamp(sizeof(NcclSetup)),
                  "Install the CUDA toolkit and NCCL (libnccl-dev) and configure again with -DYOKE_NCCL=ON.");
  return reinterpret_cast<Function>(address);
}

}  // namespace

std::unique_ptr<Backend> make_nccl_backend(const NcclSetup& setup) {
  YOKE_CHECK(setup.put && setup.get, "the nccl backend needs a function to exchange its identifier");
  auto make = entry<Backend* (*)(const NcclSetup*)>("yoke_nccl_backend", setup.folder);
  YOKE_CHECK(setup.host, "the nccl backend needs a backend for host memory");
  return std::unique_ptr<Backend>(make(&setup));
}

void nccl_copy(void* to, const void* from, size_t bytes, const std::string& folder) {
  entry<void (*)(void*, const void*, size_t)>("yoke_nccl_copy", folder)(to, from, bytes);
}

}  // namespace yoke::comm
