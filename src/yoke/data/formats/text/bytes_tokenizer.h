// A tokenizer for text without one.
#pragma once

#include <string>

namespace yoke::data {

// A tokenizer.json (tokenizer_file.h) whose tokens are the 256 bytes, without merges.
std::string bytes_tokenizer();

}  // namespace yoke::data
