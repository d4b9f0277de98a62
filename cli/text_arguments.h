// Arguments of `yoke data tokens` and `yoke generate`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace yoke::cli {

struct TokensArguments {
  std::vector<std::string> files;
  std::string output;
  std::string tokenizer;    // tokenizer.json; empty: bytes
  double validation = 0.1;  // share
};

struct GenerateArguments {
  std::string path;  // run, checkpoint, or a folder of transformers
  std::string prompt;
  int64_t tokens = 200;
  double temperature = 0.8;  // 0: the most probable token
  int64_t top_k = 0;         // 0: all
  double top_p = 1;
  int64_t seed = 1;
  std::string tokenizer;  // empty: the run's
  std::string device = "cpu";
};

void add_options(CLI::App& command, TokensArguments& arguments);
void add_options(CLI::App& command, GenerateArguments& arguments);

}  // namespace yoke::cli
