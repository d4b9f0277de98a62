#include "yoke/compute/gradient_home.h"

#include <utility>

#include "yoke/base/error.h"

namespace yoke::compute {
namespace {

thread_local GradientHomes* in_use = nullptr;

}  // namespace

void GradientHomes::set(const torch::Tensor& parameter, const torch::Tensor& home) {
  YOKE_CHECK(home.sizes() == parameter.sizes() && home.is_contiguous(), "a home of another shape");
  homes_[parameter.unsafeGetTensorImpl()] = {home, false};
}

void GradientHomes::arrived(const torch::Tensor& parameter) {
  auto found = homes_.find(parameter.unsafeGetTensorImpl());
  if (found != homes_.end()) found->second.taken = false;
}

void GradientHomes::remove(const torch::Tensor& parameter) {
  homes_.erase(parameter.unsafeGetTensorImpl());
}

GradientHomes::Use::Use(GradientHomes& homes) : before_(std::exchange(in_use, &homes)) {}
GradientHomes::Use::~Use() {
  in_use = before_;
}

torch::Tensor gradient_home(const torch::Tensor& parameter) {
  if (in_use == nullptr) return {};
  auto found = in_use->homes_.find(parameter.unsafeGetTensorImpl());
  // An existing gradient would be overwritten.
  if (found == in_use->homes_.end() || found->second.taken || parameter.grad().defined()) return {};
  found->second.taken = true;
  return found->second.place.detach();
}

}  // namespace yoke::compute
