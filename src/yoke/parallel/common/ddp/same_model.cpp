#include "yoke/parallel/common/ddp/same_model.h"

#include <fmt/format.h>

#include <sstream>
#include <unordered_set>

#include "yoke/base/error.h"
#include "yoke/comm/tensors/tensors.h"

namespace yoke::parallel {
namespace {

template <class Items>
NamedTensors distinct(const Items& items) {
  NamedTensors found;
  std::unordered_set<const void*> seen;
  for (const auto& item : items) {
    if (!item.value().defined() || !seen.insert(item.value().unsafeGetTensorImpl()).second) continue;
    found.emplace_back(item.key(), item.value());
  }
  return found;
}

std::string line_of(const char* kind, const std::string& name, const torch::Tensor& tensor) {
  std::ostringstream text;
  text << kind << " " << name << " " << tensor.sizes() << " " << c10::toString(tensor.scalar_type());
  if (tensor.requires_grad()) text << ", trained";
  return text.str();
}

std::vector<std::string> lines_of(const NamedTensors& parameters, const NamedTensors& buffers) {
  std::vector<std::string> lines;
  for (const auto& [name, tensor] : parameters) lines.push_back(line_of("parameter", name, tensor));
  for (const auto& [name, tensor] : buffers) lines.push_back(line_of("buffer", name, tensor));
  return lines;
}

// Broadcasts a text of rank `root`, in memory of the model's device: some communicators only move that.
std::string broadcast_text(std::string text, torch::Device device, comm::Communicator& comm, int root) {
  torch::Tensor length = torch::tensor({static_cast<int64_t>(text.size())}, torch::kInt64).to(device);
  comm::broadcast(comm, length, root, "length of a text");
  text.resize(static_cast<size_t>(length.item<int64_t>()));
  if (text.empty()) return text;
  torch::Tensor bytes =
      torch::from_blob(text.data(), {static_cast<int64_t>(text.size())}, torch::kUInt8).clone().to(device);
  comm::broadcast(comm, bytes, root, "text");
  bytes = bytes.cpu();
  return {reinterpret_cast<const char*>(bytes.const_data_ptr<uint8_t>()), text.size()};
}

// The first line in which this rank's list differs from rank 0's; empty if none.
std::string first_difference(const std::vector<std::string>& own, const std::string& root_text, int rank) {
  std::istringstream root(root_text);
  std::string line;
  size_t at = 0;
  auto own_line = [&] { return at < own.size() ? own[at] : std::string("nothing more"); };
  for (; std::getline(root, line); ++at) {
    if (at >= own.size() || own[at] != line)
      return fmt::format("entry {}: rank 0 has {}, rank {} has {}", at, line, rank, own_line());
  }
  if (at < own.size())
    return fmt::format("entry {}: rank 0 has nothing more, rank {} has {}", at, rank, own_line());
  return "";
}

}  // namespace

NamedTensors distinct_parameters(const torch::nn::Module& module) {
  return distinct(module.named_parameters());
}

NamedTensors distinct_buffers(const torch::nn::Module& module) {
  return distinct(module.named_buffers());
}

void check_same_model(const NamedTensors& parameters, const NamedTensors& buffers, comm::Communicator& comm) {
  torch::Device device = parameters.empty() ? torch::Device(torch::kCPU) : parameters[0].second.device();
  std::vector<std::string> own = lines_of(parameters, buffers);
  std::string text;
  for (const std::string& line : own) text += line + "\n";
  std::string root_text = broadcast_text(text, device, comm, 0);
  std::string difference = first_difference(own, root_text, comm.rank());
  torch::Tensor differs = torch::tensor({difference.empty() ? int64_t{0} : int64_t{1}}, torch::kInt64);
  torch::Tensor all = comm::all_gather(comm, differs.to(device), "models differ").cpu();
  for (int rank = 0; rank < comm.size(); ++rank) {
    if (all[rank].item<int64_t>() == 0) continue;
    throw ConfigError(
        "the ranks do not have the same model. {}. Every rank must build the model from the same code, sizes "
        "and options.",
        broadcast_text(difference, device, comm, rank));
  }
}

}  // namespace yoke::parallel
