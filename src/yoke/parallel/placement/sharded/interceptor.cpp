#include "yoke/parallel/placement/sharded/interceptor.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

#include <algorithm>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>

namespace yoke::parallel {
namespace {

constexpr auto kKey = c10::DispatchKey::TESTING_ONLY_GenericWrapper;

struct Known {
  const Interceptor::Owner* owner;
  size_t position;
};

// By storage and not by thread: backward runs in threads of its own on GPUs.
std::shared_mutex registry_mutex;
std::unordered_map<const void*, Known> registry;
thread_local int interceptors_here = 0;

struct Reads {
  const Interceptor::Owner* owner = nullptr;
  std::vector<size_t> positions;

  void add(const at::Tensor& tensor) {
    if (!tensor.defined() || !tensor.has_storage()) return;
    auto found = registry.find(tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl());
    if (found == registry.end() || (owner != nullptr && owner != found->second.owner)) return;
    owner = found->second.owner;
    if (std::find(positions.begin(), positions.end(), found->second.position) == positions.end())
      positions.push_back(found->second.position);
  }

  void add(const c10::IValue& value) {
    if (value.isTensor()) {
      add(value.toTensor());
    } else if (value.isTensorList()) {
      for (const at::Tensor& tensor : value.toTensorVector()) add(tensor);
    } else if (value.isList()) {
      for (const c10::IValue& one : value.toListRef())
        if (one.isTensor()) add(one.toTensor());
    }
  }
};

// `_backward` is an operation that runs many others, and those must be seen.
bool runs_backward(const c10::OperatorHandle& op) {
  static const c10::OperatorName name("aten::_backward", "");
  return op.operator_name() == name;
}

void before_operation(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  if (runs_backward(op)) {
    op.redispatchBoxed(keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, kKey), stack);
    return;
  }
  c10::impl::ExcludeDispatchKeyGuard without(kKey);
  Reads reads;
  {
    std::shared_lock lock(registry_mutex);
    size_t arguments = op.schema().arguments().size();
    for (size_t i = stack->size() - arguments; i < stack->size(); ++i) reads.add((*stack)[i]);
  }
  if (reads.owner != nullptr) reads.owner->before_read(reads.positions);
  op.callBoxed(stack);
}

void install_fallback() {
  static torch::Library library(torch::Library::IMPL, "_", kKey, __FILE__, __LINE__);
  static std::once_flag once;
  std::call_once(once,
                 [] { library.fallback(torch::CppFunction::makeFromBoxedFunction<&before_operation>()); });
}

}  // namespace

Interceptor::Interceptor(const std::vector<const c10::StorageImpl*>& storages, BeforeRead before_read)
    : storages_(storages), owner_{std::move(before_read)} {
  install_fallback();
  {
    std::unique_lock lock(registry_mutex);
    for (size_t i = 0; i < storages_.size(); ++i) registry[storages_[i]] = {&owner_, i};
  }
  if (interceptors_here++ == 0) c10::impl::tls_set_dispatch_key_included(kKey, true);
}

Interceptor::~Interceptor() {
  if (--interceptors_here == 0) c10::impl::tls_set_dispatch_key_included(kKey, false);
  std::unique_lock lock(registry_mutex);
  for (const c10::StorageImpl* storage : storages_) registry.erase(storage);
}

}  // namespace yoke::parallel
