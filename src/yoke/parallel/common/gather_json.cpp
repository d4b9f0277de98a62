#include "yoke/parallel/common/gather_json.h"

#include <array>
#include <string>

#include "yoke/base/error.h"
#include "yoke/comm/tensors/tensors.h"

namespace yoke::parallel {
namespace {

constexpr int64_t kLargest = int64_t{1} << 30;  // bytes of one rank's document

}  // namespace

nlohmann::json parse_documents(std::string_view text, std::span<const int64_t> lengths) {
  nlohmann::json all = nlohmann::json::array();
  for (size_t rank = 0; rank < lengths.size(); ++rank) {
    auto length = static_cast<size_t>(lengths[rank]);
    nlohmann::json one;
    if (length <= text.size())
      one = nlohmann::json::parse(text.substr(0, length), nullptr, /*allow_exceptions=*/false);
    if (length > text.size() || one.is_discarded())
      throw CommError("rank {} sent {} bytes that are no JSON document. Are all ranks the same build?", rank,
                      lengths[rank]);
    all.push_back(std::move(one));
    text.remove_prefix(length);
  }
  return all;
}

nlohmann::json gather_json(const nlohmann::json& own, comm::Communicator* comm) {
  // Names of files and devices may hold any bytes.
  std::string text = own.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  if (comm == nullptr) return parse_documents(text, std::array{static_cast<int64_t>(text.size())});
  auto length = static_cast<int64_t>(text.size());
  torch::Tensor bytes = torch::from_blob(text.data(), {length}, torch::kUInt8).clone();
  torch::Tensor all_lengths =
      comm::all_gather(*comm, torch::tensor({length}, torch::kInt64), "document: length");
  std::vector<int64_t> lengths(all_lengths.const_data_ptr<int64_t>(),
                               all_lengths.const_data_ptr<int64_t>() + comm->size());
  for (int64_t one : lengths)
    if (one < 0 || one > kLargest) throw CommError("a rank announced a document of {} bytes", one);
  torch::Tensor joined = comm::all_gather(*comm, bytes, "document", lengths);
  const auto* begin = reinterpret_cast<const char*>(joined.const_data_ptr<uint8_t>());
  return parse_documents({begin, static_cast<size_t>(joined.numel())}, lengths);
}

}  // namespace yoke::parallel
