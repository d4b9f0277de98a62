// A small tokenizer; for tests.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "yoke/data/formats/text/bytes_tokenizer.h"
#include "yoke/data/formats/text/tokenizer_file.h"

namespace yoke::data {

// The 256 bytes, "th" (256), "the" (257), " t" (258), " the" (259), and "<|endoftext|>" (260).
inline nlohmann::json small_tokenizer() {
  nlohmann::json file = nlohmann::json::parse(bytes_tokenizer());
  file["pre_tokenizer"]["use_regex"] = true;
  nlohmann::json& model = file["model"];
  for (const char* token : {"th", "the", "Ġt", "Ġthe"}) {
    const size_t id = model["vocab"].size();
    model["vocab"][token] = id;
  }
  model["merges"] = {"t h", "th e", {"Ġ", "t"}, "Ġ the"};
  file["added_tokens"] = {
      {{"id", 260}, {"content", "<|endoftext|>"}, {"special", true}, {"normalized", false}}};
  return file;
}

inline Tokenizer small_tokenizer_made() {
  return Tokenizer(parse_tokenizer(small_tokenizer().dump(), "small.json"));
}

}  // namespace yoke::data
