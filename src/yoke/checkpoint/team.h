// Ranks that write one checkpoint together, each its own part.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "yoke/checkpoint/format/manifest.h"
#include "yoke/checkpoint/tensors.h"

namespace yoke::checkpoint {

struct Team {
  int rank = 0;
  int size = 1;
  // Gathers everybody's text, by rank; collective, with the same `about`. Any thread. Throws CommError.
  std::function<std::vector<std::string>(const std::string& about, const std::string& own)> exchange;
};

// "model.safetensors", or with a team "model-00001-of-00004.safetensors".
std::string file_name(const std::string& kind, const Team& team);
// Rank in the team that wrote the file of that name; empty for other names.
std::optional<int> rank_of_file(const std::string& name);

// Barriers of a team that also report failures.
class Meeting {
 public:
  Meeting(const Team& team, int64_t step) : team_(team), step_(step) {}

  // Runs `work` and waits until all ranks have run theirs. Returns the result of each. If one throws, all
  // throw: that rank its own error, the others one that names the rank. Whether the error is a failed peer
  // (ExitCode::kPeerFailed) is the same on all ranks.
  std::vector<nlohmann::json> after(const std::string& what, const std::function<nlohmann::json()>& work);

 private:
  const Team& team_;
  int64_t step_;
};

// Description of a rank's part, sent to rank 0 of the team, and what it extracts from all parts.
nlohmann::json describe_part(const std::vector<format::FileEntry>& files,
                             const std::vector<NamedTensor>& model);
std::vector<format::FileEntry> files_of_part(const nlohmann::json& part);
// Hugging Face's index of a model in several files. The first file of a part is its model's.
std::string index_of_parts(const std::vector<nlohmann::json>& parts);

// The tensors that rank `rank` of `size` writes: in order, with about equal bytes per rank.
std::vector<NamedTensor> share_of(const std::vector<NamedTensor>& tensors, int rank, int size);

}  // namespace yoke::checkpoint
