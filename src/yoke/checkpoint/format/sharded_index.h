// Hugging Face's model.safetensors.index.json: which file of the folder holds which tensor.
#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>

namespace yoke::checkpoint::format {

struct ShardedIndex {
  std::map<std::string, std::string> weight_map;  // tensor -> file name inside the index's folder

  std::set<std::string> files() const;
};

// Throws ConfigError for anything other than {"metadata": {…}, "weight_map": {text: text}} and for file names
// that would leave the folder. `name` is the index file, for errors.
ShardedIndex parse_sharded_index(std::string_view text, const std::string& name);

// A plain file name: not empty, no '/', '\\' or control character, not "." or "..".
bool is_plain_file_name(std::string_view name);

}  // namespace yoke::checkpoint::format
