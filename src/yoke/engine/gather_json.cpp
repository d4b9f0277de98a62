#include "yoke/engine/gather_json.h"

#include <string>

#include "yoke/comm/tensors/tensors.h"

namespace yoke::engine {

nlohmann::json gather_json(const nlohmann::json& own, comm::Communicator* comm, torch::Device device) {
  std::string text = own.dump();
  nlohmann::json all = nlohmann::json::array();
  if (comm == nullptr) {
    all.push_back(nlohmann::json::parse(text));
    return all;
  }
  auto length = static_cast<int64_t>(text.size());
  torch::Tensor bytes = torch::from_blob(text.data(), {length}, torch::kUInt8).clone().to(device);
  torch::Tensor all_lengths =
      comm::all_gather(*comm, torch::tensor({length}, torch::kInt64).to(device), "document: length").cpu();
  std::vector<int64_t> lengths(all_lengths.const_data_ptr<int64_t>(),
                               all_lengths.const_data_ptr<int64_t>() + comm->size());
  torch::Tensor joined = comm::all_gather(*comm, bytes, "document", lengths).cpu();
  const auto* at = reinterpret_cast<const char*>(joined.const_data_ptr<uint8_t>());
  for (int64_t one : lengths) {
    all.push_back(nlohmann::json::parse(at, at + one));
    at += one;
  }
  return all;
}

}  // namespace yoke::engine
