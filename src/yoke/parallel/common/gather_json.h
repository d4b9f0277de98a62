// Gathers small JSON documents of all ranks.
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string_view>

#include "yoke/comm/communicator.h"

namespace yoke::parallel {

// Gathers the document of every rank, on every rank, as an array by rank. Collective. Without a communicator:
// this rank's alone. Throws CommError if a rank sent no valid document.
nlohmann::json gather_json(const nlohmann::json& own, comm::Communicator* comm);

// Splits concatenated documents of these lengths, by rank. Throws CommError.
nlohmann::json parse_documents(std::string_view text, std::span<const int64_t> lengths);

}  // namespace yoke::parallel
