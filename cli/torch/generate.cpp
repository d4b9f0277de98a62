// yoke generate: continues a text with a trained language model.
#include <fmt/core.h>

#include <cerrno>
#include <cstdio>

#include "cli/output.h"
#include "cli/torch/commands.h"
#include "cli/torch/text_model.h"
#include "yoke/base/clock.h"
#include "yoke/base/error.h"
#include "yoke/base/log.h"
#include "yoke/compute/device.h"
#include "yoke/data/formats/text/encoder.h"
#include "yoke/data/formats/text/utf8.h"
#include "yoke/engine/generate.h"

namespace yoke::cli {
namespace {

constexpr const char* kEnd = "<|endoftext|>";

// Text that grows by bytes; shows whole characters as soon as they are there.
class Output {
 public:
  explicit Output(bool shows) : shows_(shows) {}

  void add(std::string_view bytes) {
    pending_ += bytes;
    size_t taken = 0;
    show(data::printable_utf8(pending_, taken));
    pending_.erase(0, taken);
  }
  // A character that stays incomplete is U+FFFD.
  const std::string& finish() {
    if (!pending_.empty()) show("\xEF\xBF\xBD");
    pending_.clear();
    return text_;
  }

 private:
  void show(const std::string& text) {
    text_ += text;
    if (!shows_ || text.empty()) return;
    if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0)
      throw ConfigError("cannot write to stdout: {}.", describe_errno(errno));
  }

  bool shows_;
  std::string pending_, text_;
};

// What the model continues if there is no prompt: the end of another text, or a line's.
data::TokenId beginning(const data::Tokenizer& tokenizer) {
  if (auto end = tokenizer.added_token(kEnd)) return *end;
  const data::TokenId line = tokenizer.token_of_byte('\n');
  if (line < 0)
    throw ConfigError("{}: has neither {} nor a line break. Give a --prompt.", tokenizer.file(), kEnd);
  return line;
}

std::vector<int64_t> prompt_of(const GenerateArguments& arguments, const TextModel& text) {
  std::vector<data::TokenId> ids = data::Encoder(*text.tokenizer).encode(arguments.prompt, "--prompt");
  if (ids.empty()) ids.push_back(beginning(*text.tokenizer));
  for (data::TokenId id : ids)
    if (id >= text.model.sample.classes)
      throw ConfigError(
          "{}: token {} of the prompt is outside the model's vocabulary of {}. Name the tokenizer that the "
          "model "
          "was trained with: --tokenizer FILE.",
          text.tokenizer->file(), id, text.model.sample.classes);
  const int64_t positions = text.model.sample.shape.at(0);
  if (static_cast<int64_t>(ids.size()) > positions)
    log::warn("the prompt has {} tokens; the model sees the last {}", ids.size(), positions);
  return {ids.begin(), ids.end()};
}

engine::GenerateOptions options_of(const GenerateArguments& arguments, const data::Tokenizer& tokenizer) {
  engine::GenerateOptions options;
  options.sampling = {arguments.temperature, arguments.top_k, arguments.top_p};
  options.seed = static_cast<uint64_t>(arguments.seed);
  options.tokens = arguments.tokens;
  options.vocabulary = tokenizer.vocabulary();
  options.end = tokenizer.added_token(kEnd);
  return options;
}

}  // namespace

int run_generate(const CommandLine& line) {
  const GenerateArguments& arguments = line.generate;
  const torch::Device device = compute::resolve_device(arguments.device);
  TextModel text = load_text_model(arguments.path, arguments.tokenizer);
  const std::vector<int64_t> prompt = prompt_of(arguments, text);
  const engine::GenerateOptions options = options_of(arguments, *text.tokenizer);
  text.model.module->to(device);

  Output output(!line.json);
  output.add(arguments.prompt);
  std::vector<int64_t> tokens;
  const double began = now_seconds();
  engine::generate(text.model, prompt, options, [&](int64_t token) {
    tokens.push_back(token);
    if (token != options.end) output.add(text.tokenizer->bytes_of(token));
    return true;
  });
  const double seconds = now_seconds() - began;
  const std::string& whole = output.finish();
  if (!line.json) {
    fmt::print("\n");
    return 0;
  }
  print_json({{"text", whole},
              {"prompt_tokens", prompt},
              {"tokens", tokens},
              {"ended", !tokens.empty() && tokens.back() == options.end},
              {"source", text.source},
              {"tokenizer", text.tokenizer->file()},
              {"tokens_per_s", static_cast<double>(tokens.size()) / seconds}});
  return 0;
}

}  // namespace yoke::cli
