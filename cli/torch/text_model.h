// A trained language model and its tokenizer, from a run or from transformers.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "yoke/data/formats/text/tokenizer.h"
#include "yoke/models/model.h"

namespace yoke::cli {

struct TextModel {
  models::Model model;  // in evaluation mode, fp32, on the CPU
  std::string source;   // what was loaded: a checkpoint, or a folder
  std::unique_ptr<data::Tokenizer> tokenizer;
};

// `path`: a run (its newest good checkpoint), a checkpoint, or a folder saved by transformers. `tokenizer`: a
// file; empty: tokenizer.json of the run or the folder. Throws ConfigError: no gpt2, another variant of it,
// no tokenizer; CheckpointError: no usable checkpoint.
TextModel load_text_model(const std::string& path, const std::string& tokenizer);

}  // namespace yoke::cli
