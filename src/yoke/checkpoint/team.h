// Ranks that write one checkpoint together, each its part.
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
  // Everybody's text, by rank; all call it with the same `about`, from any one thread. Throws CommError.
  std::function<std::vector<std::string>(const std::string& about, const std::string& own)> exchange;
};

// "model.safetensors", or with a team "model-00001-of-00004.safetensors".
std::string file_name(const std::string& kind, const Team& team);
// Who of a team wrote the file of that name; empty for other names.
std::optional<int> rank_of_file(const std::string& name);

// Where the ranks of a team wait for each other, and learn who failed.
class Meeting {
 public:
  Meeting(const Team& team, int64_t step) : team_(team), step_(step) {}

  // Does `work` and waits for all to have done theirs. Returns what each gave. Where one threw, all throw:
  // that one its own error, the others one that names the rank.
  std::vector<nlohmann::json> after(const std::string& what, const std::function<nlohmann::json()>& work);

 private:
  const Team& team_;
  int64_t step_;
};

// What a rank tells of its part, and what the first one makes of all of them.
nlohmann::json describe_part(const std::vector<format::FileEntry>& files,
                             const std::vector<NamedTensor>& model);
std::vector<format::FileEntry> files_of_part(const nlohmann::json& part);
// Hugging Face's index of a model in several files. The first file of a part is its model's.
std::string index_of_parts(const std::vector<nlohmann::json>& parts);

// Which of these tensors rank `rank` of `size` writes: in order, about the same bytes for each.
std::vector<NamedTensor> share_of(const std::vector<NamedTensor>& tensors, int rank, int size);

}  // namespace yoke::checkpoint
