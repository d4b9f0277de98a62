#include "yoke/parallel/sync/average/fragments.h"

#include <torch/utils.h>

#include <map>

#include "yoke/base/error.h"

namespace yoke::parallel {

std::vector<Averaged> averaged_parameters(const NamedTensors& parameters, const NamedTensors& optimizer) {
  const std::map<std::string, torch::Tensor> state(optimizer.begin(), optimizer.end());
  std::vector<Averaged> all;
  for (const auto& [name, parameter] : parameters) {
    auto master = state.find("master/" + name);
    torch::Tensor own = parameter.detach();
    all.push_back({name, own, master != state.end() ? master->second : own});
  }
  return all;
}

torch::Tensor Fragment::part(const torch::Tensor& flat, size_t i) const {
  const torch::Tensor& value = tensors[i].value;
  return flat.narrow(0, bucket.offsets[i], value.numel()).view(value.sizes());
}

void Fragment::gather(torch::Tensor flat) const {
  torch::NoGradGuard no_grad;
  for (size_t i = 0; i < tensors.size(); ++i) part(flat, i).copy_(tensors[i].value);
}

void Fragment::scatter(const torch::Tensor& flat) const {
  torch::NoGradGuard no_grad;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const auto& [name, parameter, value] = tensors[i];
    value.copy_(part(flat, i));
    if (!parameter.is_same(value)) parameter.copy_(value);
  }
}

void Fragment::add(const torch::Tensor& flat) const {
  torch::NoGradGuard no_grad;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const auto& [name, parameter, value] = tensors[i];
    value.add_(part(flat, i));
    if (!parameter.is_same(value)) parameter.copy_(value);
  }
}

std::vector<Fragment> cut_into_fragments(std::vector<Averaged> tensors, int64_t count,
                                         comm::Communicator& comm) {
  const auto available = static_cast<int64_t>(tensors.size());
  if (count > available)
    throw ConfigError("average.fragments = {}: the model has {} tensors of parameters. Use 1..{}.", count,
                      available, available);
  int64_t left = 0;
  for (const Averaged& one : tensors) left += one.value.numel();
  std::vector<Fragment> fragments(static_cast<size_t>(count));
  size_t next = 0;
  for (int64_t f = 0; f < count; ++f) {
    Fragment& fragment = fragments[static_cast<size_t>(f)];
    const int64_t still = count - f, fair = left / still;
    int64_t size = 0;
    // At least one tensor here, and one for each fragment behind.
    while (next < tensors.size() && (fragment.tensors.empty() || still == 1 ||
                                     (size + tensors[next].value.numel() / 2 < fair &&
                                      available - static_cast<int64_t>(next) > still - 1))) {
      fragment.bucket.offsets.push_back(size);
      size += tensors[next].value.numel();
      fragment.tensors.push_back(std::move(tensors[next++]));
    }
    left -= size;
    torch::ScalarType type = fragment.tensors.front().value.scalar_type();
    for (const Averaged& one : fragment.tensors) type = torch::promoteTypes(type, one.value.scalar_type());
    GradientBucket& bucket = fragment.bucket;
    bucket.index = static_cast<int>(f);
    bucket.options = fragment.tensors.front().value.options().dtype(type);
    bucket.flat = torch::zeros({size}, bucket.options);
    bucket.elements = size;
    bucket.comm = &comm;
    bucket.divisor = comm.size();
    for (size_t i = 0; i < fragment.tensors.size(); ++i)
      bucket.parts.push_back(fragment.part(bucket.flat, i));
  }
  return fragments;
}

}  // namespace yoke::parallel
