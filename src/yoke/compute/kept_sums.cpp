#include "yoke/compute/kept_sums.h"

#include <utility>

namespace yoke::compute {
namespace {

// LibTorch keeps such an object with a tensor for backends; it does not look into it.
struct Kept : c10::BackendMeta {
  Kept(torch::Tensor all, const torch::Tensor& gradient)
      : sums(std::move(all)), data(gradient.const_data_ptr()), version(gradient._version()) {}

  torch::Tensor sums;
  const void* data;
  int64_t version;
};

}  // namespace

void keep_sums(const torch::Tensor& gradient, torch::Tensor sums) {
  gradient.unsafeGetTensorImpl()->set_backend_meta(c10::make_intrusive<Kept>(std::move(sums), gradient));
}

torch::Tensor kept_sums(const torch::Tensor& gradient) {
  const auto* kept = dynamic_cast<const Kept*>(gradient.unsafeGetTensorImpl()->get_backend_meta());
  const bool valid = kept != nullptr && kept->data == gradient.const_data_ptr() &&
                     kept->version == gradient._version() && kept->sums.numel() == gradient.size(-1);
  return valid ? kept->sums : torch::Tensor();
}

}  // namespace yoke::compute
