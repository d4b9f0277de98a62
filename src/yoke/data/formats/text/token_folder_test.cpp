#include "yoke/data/formats/text/token_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "yoke/base/error.h"
#include "yoke/base/file.h"
#include "yoke/data/formats/text/test_tokenizer.h"
#include "yoke/data/formats/tokens.h"

namespace yoke::data {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class Place {
 public:
  Place()
      : path(fs::path(testing::TempDir()) / testing::UnitTest::GetInstance()->current_test_info()->name()) {
    fs::remove_all(path);
    fs::create_directories(path);
  }
  ~Place() { fs::remove_all(path); }
  std::string file(const std::string& name, const std::string& content) const {
    write_file_atomically(path / name, content);
    return (path / name).string();
  }
  std::vector<int64_t> tokens(const char* name, int64_t vocabulary = 0) const {
    const std::string bytes = read_file(path / "out" / name);
    const TokenFile read = parse_tokens(bytes, name, vocabulary);
    std::vector<int64_t> all;
    for (int64_t i = 0; i < read.count(); ++i) all.push_back(read.at(i));
    return all;
  }
  std::vector<std::string> names() const {
    std::vector<std::string> all;
    for (const auto& entry : fs::directory_iterator(path / "out")) all.push_back(entry.path().filename());
    std::ranges::sort(all);
    return all;
  }
  const fs::path path;
};

std::string problem_of(const TokenFolderOptions& options) {
  try {
    write_token_folder(options);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "written";
}

TEST(TokenFolder, WritesBytesAndSplitsThemAtTheEnd) {
  Place place;
  const TokenFolder made = write_token_folder(
      {{place.file("a", "hello "), place.file("b", "you\xFF")}, place.path / "out", "", 0.2});
  EXPECT_EQ(made.vocabulary, 256);
  EXPECT_THAT(place.tokens("train.bin"), ElementsAre('h', 'e', 'l', 'l', 'o', ' ', 'y', 'o'));
  EXPECT_THAT(place.tokens("val.bin"), ElementsAre('u', 0xFF));
  EXPECT_THAT(place.names(), ElementsAre("tokenizer.json", "train.bin", "val.bin"));
}

TEST(TokenFolder, PutsTheEndOfTextBetweenFilesAndKeepsTheTokenizer) {
  Place place;
  const std::string tokenizer = place.file("t.json", small_tokenizer().dump());
  const TokenFolder made = write_token_folder(
      {{place.file("a", "the the"), place.file("b", "the")}, place.path / "out", tokenizer, 0});
  EXPECT_EQ(made.vocabulary, 261);
  EXPECT_EQ(made.text_bytes, 10);
  EXPECT_THAT(place.tokens("train.bin"), ElementsAre(257, 259, 260, 257));
  EXPECT_THAT(place.names(), ElementsAre("tokenizer.json", "train.bin"));
  EXPECT_EQ(read_file(place.path / "out/tokenizer.json"), small_tokenizer().dump());
}

TEST(TokenFolder, HasTokensOf32BitsForALargeVocabulary) {
  Place place;
  nlohmann::json large = small_tokenizer();
  large["added_tokens"].push_back({{"id", 70000}, {"content", "<last>"}});
  const std::string tokenizer = place.file("t.json", large.dump());
  const TokenFolder made =
      write_token_folder({{place.file("a", "the<last>the")}, place.path / "out", tokenizer, 0});
  EXPECT_EQ(made.width, 4);
  EXPECT_THAT(place.tokens("train.bin", made.vocabulary), ElementsAre(257, 70000, 257));
}

TEST(TokenFolder, ReplacesAnOlderOneWhole) {
  Place place;
  write_token_folder({{place.file("a", "some older text")}, place.path / "out", "", 0.5});
  write_token_folder({{place.file("b", "new")}, place.path / "out", "", 0});
  EXPECT_THAT(place.tokens("train.bin"), ElementsAre('n', 'e', 'w'));
  EXPECT_THAT(place.names(), ElementsAre("tokenizer.json", "train.bin"));
}

TEST(TokenFolder, NamesWhatIsWrongAndLeavesTheOlderOne) {
  Place place;
  const std::string good = place.file("good", "some good text"),
                    tokenizer = place.file("t.json", small_tokenizer().dump());
  const fs::path out = place.path / "out";
  write_token_folder({{good}, out, "", 0});
  EXPECT_THAT(problem_of({{good, place.file("empty", "")}, out, "", 0}),
              HasSubstr("empty: the file is empty"));
  EXPECT_THAT(problem_of({{good, (place.path / "none").string()}, out, "", 0}),
              HasSubstr("none: cannot open"));
  EXPECT_THAT(problem_of({{place.path.string()}, out, "", 0}), HasSubstr("Is a directory"));
  EXPECT_THAT(problem_of({{good, place.file("latin", "caf\xE9")}, out, tokenizer, 0}),
              HasSubstr("latin, byte 3: not valid UTF-8 (0xe9)"));
  EXPECT_THAT(problem_of({{good}, out, good, 0}), HasSubstr("good:1: not valid JSON"));
  EXPECT_THAT(problem_of({{place.file("a", "a")}, out, "", 0}), HasSubstr("1 tokens: too few"));
  EXPECT_THAT(problem_of({{place.file("a", "abcd")}, out, "", 0.1}), HasSubstr("too few"));
  EXPECT_THAT(problem_of({{good}, place.path / "good" / "x", "", 0}), HasSubstr("cannot create the folder"));
  const std::string utf16("h\0e\0l\0l\0o\0!\0", 12);
  EXPECT_THAT(problem_of({{place.file("wide", utf16)}, out, "", 0}), HasSubstr("looks like UTF-16"));
  EXPECT_EQ(place.tokens("train.bin").size(), 14u);
  EXPECT_THAT(place.names(), ElementsAre("tokenizer.json", "train.bin"));
}

}  // namespace
}  // namespace yoke::data
