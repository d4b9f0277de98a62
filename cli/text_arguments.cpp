#include "cli/text_arguments.h"

#include <CLI/CLI.hpp>

#include "cli/positive.h"

namespace yoke::cli {

void add_options(CLI::App& command, TokensArguments& arguments) {
  command.add_option("FILES", arguments.files, "text files")->required();
  command.add_option("-o,--output", arguments.output, "folder for train.bin, val.bin and tokenizer.json")
      ->required();
  command.add_option("--tokenizer", arguments.tokenizer,
                     "tokenizer.json (byte-level BPE); without it each byte is a token");
  command.add_option("--validation", arguments.validation, "share of the tokens for val.bin, from the end")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 0.9));
}

void add_options(CLI::App& command, GenerateArguments& arguments) {
  command
      .add_option("PATH", arguments.path,
                  "run folder (newest checkpoint), checkpoint, or a folder saved by transformers")
      ->required();
  command.add_option("--prompt", arguments.prompt, "text to continue");
  command.add_option("--tokens", arguments.tokens, "number of tokens to add")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 30));
  command.add_option("--temperature", arguments.temperature, "0: always the most probable token")
      ->capture_default_str()
      ->check(finite_from_zero());
  command.add_option("--top-k", arguments.top_k, "draw from the K most probable tokens; 0: from all")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 30));
  command.add_option("--top-p", arguments.top_p, "draw from the most probable tokens that add up to P")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 1.0));
  command.add_option("--seed", arguments.seed, "random seed of the draws")->capture_default_str();
  command.add_option("--tokenizer", arguments.tokenizer, "tokenizer.json; default: the one in PATH");
  command.add_option("--device", arguments.device, "cpu, cuda or cuda:N")->capture_default_str();
}

}  // namespace yoke::cli
