#include "yoke/data/formats/text/token_folder.h"

#include <cmath>
#include <optional>

#include "yoke/base/error.h"
#include "yoke/base/file.h"
#include "yoke/data/formats/text/bytes_tokenizer.h"
#include "yoke/data/formats/text/encoder.h"
#include "yoke/data/formats/text/token_writer.h"
#include "yoke/data/formats/text/tokenizer_file.h"

namespace yoke::data {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMost16 = int64_t{1} << 16;
constexpr const char* kEnd = "<|endoftext|>";

std::string_view text_of(const MappedFile& file, const std::string& name) {
  if (file.size() == 0) throw ConfigError("{}: the file is empty.", name);
  return file.view();
}

int64_t add_bytes(const TokenFolderOptions& options, TokenWriter& writer) {
  for (const std::string& file : options.files) {
    const MappedFile mapped(file);
    writer.add_bytes(text_of(mapped, file));
  }
  return writer.count();
}

int64_t add_text(const TokenFolderOptions& options, const Tokenizer& tokenizer, TokenWriter& writer) {
  Encoder encoder(tokenizer);
  const std::optional<TokenId> end = tokenizer.added_token(kEnd);
  int64_t bytes = 0;
  for (const std::string& file : options.files) {
    const MappedFile mapped(file);
    const std::string_view text = text_of(mapped, file);
    if (end && bytes > 0) writer.add({{*end}});
    encoder.encode(text, file, [&](std::span<const TokenId> tokens) { writer.add(tokens); });
    bytes += static_cast<int64_t>(text.size());
  }
  return bytes;
}

void make_folder(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) throw ConfigError("{}: cannot create the folder: {}.", folder.string(), error.message());
}

void remove_file(const fs::path& file) {
  std::error_code error;
  fs::remove(file, error);
  if (error) throw ConfigError("{}: cannot remove it: {}.", file.string(), error.message());
}

}  // namespace

TokenFolder write_token_folder(const TokenFolderOptions& options) {
  TokenFolder made;
  const std::string definition =
      options.tokenizer.empty() ? bytes_tokenizer() : read_file(options.tokenizer, kMostTokenizerBytes);
  const Tokenizer tokenizer(
      parse_tokenizer(definition, options.tokenizer.empty() ? kTokenizerName : options.tokenizer));
  made.vocabulary = tokenizer.vocabulary();
  made.width = made.vocabulary > kMost16 ? 4 : 2;
  make_folder(options.folder);
  TokenWriter train(options.folder / "train.bin", made.width);
  TokenWriter validation(options.folder / "val.bin", made.width);
  made.text_bytes =
      options.tokenizer.empty() ? add_bytes(options, train) : add_text(options, tokenizer, train);

  const int64_t all = train.count();
  made.validation = std::llround(static_cast<double>(all) * options.validation);
  made.train = all - made.validation;
  if (made.train < 2 || (options.validation > 0 && made.validation < 2))
    throw ConfigError("{} tokens: too few for training and a validation share of {}. Give more text.", all,
                      options.validation);
  if (made.validation > 0) train.move_tail(made.train, validation);
  train.finish(made.vocabulary);
  if (made.validation > 0) validation.finish(made.vocabulary);

  remove_file(options.folder / "train.bin");
  write_file_atomically(options.folder / kTokenizerName, definition);
  if (made.validation > 0)
    validation.commit();
  else
    remove_file(options.folder / "val.bin");
  train.commit();
  sync_directory(options.folder);
  return made;
}

}  // namespace yoke::data
