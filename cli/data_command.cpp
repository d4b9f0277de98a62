#include "cli/data_command.h"

#include <fmt/core.h>

#include "cli/output.h"
#include "yoke/base/clock.h"
#include "yoke/base/units.h"
#include "yoke/data/formats/text/token_folder.h"

namespace yoke::cli {

int make_tokens(const CommandLine& line) {
  const TokensArguments& arguments = line.tokens;
  const double began = now_seconds();
  const data::TokenFolder made = data::write_token_folder(
      {arguments.files, arguments.output, arguments.tokenizer, arguments.validation});
  const double seconds = now_seconds() - began;
  const std::string tokenizer = arguments.tokenizer.empty() ? "bytes" : arguments.tokenizer;
  if (line.json) {
    print_json({{"folder", arguments.output},
                {"tokenizer", tokenizer},
                {"vocabulary", made.vocabulary},
                {"token_bytes", made.width},
                {"text_bytes", made.text_bytes},
                {"train", made.train},
                {"validation", made.validation},
                {"seconds", seconds}});
    return 0;
  }
  auto count = [](int64_t value) { return format_count(static_cast<double>(value)); };
  fmt::print("{}: {} tokens for training, {} for validation, of {} of text ({}/s)\n", arguments.output,
             count(made.train), count(made.validation), format_bytes(static_cast<double>(made.text_bytes)),
             format_bytes(static_cast<double>(made.text_bytes) / seconds));
  fmt::print("  tokenizer   {}, vocabulary {}\n", tokenizer, count(made.vocabulary));
  fmt::print("  train       --data.name tokens --data.dir {} --model.vocabulary {}\n", arguments.output,
             made.vocabulary);
  return 0;
}

}  // namespace yoke::cli
