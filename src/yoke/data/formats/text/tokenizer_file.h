// Hugging Face's tokenizer.json, for byte-level BPE.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "yoke/data/formats/text/tokenizer.h"

namespace yoke::data {

constexpr const char* kTokenizerName = "tokenizer.json";
constexpr int64_t kMostTokenizerBytes = int64_t{1} << 28;

// Throws ConfigError that names `file`, the part, and its value: anything but byte-level BPE (another model,
// normalizer or pre-tokenizer), ids that are negative, huge or used twice, merges of unknown tokens. What
// only matters to tensors and special tokens is not used: post_processor, truncation, padding.
TokenizerSpec parse_tokenizer(std::string_view text, const std::string& file);

std::unique_ptr<Tokenizer> read_tokenizer(const std::filesystem::path& path);

// The tokenizer.json beside the token files of data.name and data.dir, if there is one.
std::optional<std::filesystem::path> tokenizer_of(const std::string& data_name, const std::string& data_dir);

}  // namespace yoke::data
