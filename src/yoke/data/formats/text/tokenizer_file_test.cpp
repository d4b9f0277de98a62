#include "yoke/data/formats/text/tokenizer_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>

#include "yoke/base/error.h"
#include "yoke/base/file.h"
#include "yoke/data/formats/text/test_tokenizer.h"

namespace yoke::data {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

std::string problem_of(const std::string& text) {
  try {
    parse_tokenizer(text, "t.json");
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "accepted";
}

std::string problem_after(const std::function<void(json&)>& change) {
  json file = small_tokenizer();
  change(file);
  return problem_of(file.dump());
}

TEST(TokenizerFile, ReadsVocabularyMergesAndAddedTokens) {
  const TokenizerSpec spec = parse_tokenizer(small_tokenizer().dump(), "t.json");
  ASSERT_EQ(spec.tokens.size(), 261u);
  EXPECT_EQ(spec.tokens[259], " the");
  EXPECT_EQ(spec.tokens[10], "\n");
  EXPECT_EQ(spec.merges.size(), 4u);
  EXPECT_EQ(spec.added.at(0).content, "<|endoftext|>");
  EXPECT_TRUE(spec.cut_words);
  EXPECT_FALSE(spec.add_prefix_space);
}

TEST(TokenizerFile, RefusesWhatIsNotByteLevelBpeByName) {
  auto refuses = [](const char* what, const std::function<void(json&)>& change) {
    EXPECT_THAT(problem_after(change), HasSubstr(what));
  };
  refuses("model WordPiece", [](json& f) { f["model"]["type"] = "WordPiece"; });
  refuses("normalizer NFC", [](json& f) { f["normalizer"] = {{"type", "NFC"}}; });
  refuses("normalizer is a sequence of NFC, Lowercase", [](json& f) {
    f["normalizer"] = {{"type", "Sequence"}, {"normalizers", {{{"type", "NFC"}}, {{"type", "Lowercase"}}}}};
  });
  refuses("pre_tokenizer Metaspace", [](json& f) { f["pre_tokenizer"] = {{"type", "Metaspace"}}; });
  refuses("pre_tokenizer is a sequence of Split, ByteLevel", [](json& f) {
    f["pre_tokenizer"] = {{"type", "Sequence"},
                          {"pretokenizers", {{{"type", "Split"}}, {{"type", "ByteLevel"}}}}};
  });
  refuses("no pre_tokenizer", [](json& f) { f["pre_tokenizer"] = nullptr; });
  refuses("decoder BPEDecoder", [](json& f) { f["decoder"] = {{"type", "BPEDecoder"}}; });
  refuses("model.end_of_word_suffix \"</w>\"", [](json& f) { f["model"]["end_of_word_suffix"] = "</w>"; });
  refuses("model.continuing_subword_prefix", [](json& f) { f["model"]["continuing_subword_prefix"] = "##"; });
  refuses("model.dropout 0.1", [](json& f) { f["model"]["dropout"] = 0.1; });
  refuses("single_word", [](json& f) { f["added_tokens"][0]["single_word"] = true; });
}

TEST(TokenizerFile, NamesWhatIsWrongInADamagedFile) {
  auto says = [](const char* what, const std::function<void(json&)>& change) {
    EXPECT_THAT(problem_after(change), HasSubstr(what));
  };
  EXPECT_THAT(problem_of(""), HasSubstr("t.json:1: not valid JSON"));
  EXPECT_THAT(problem_of("[1]"), HasSubstr("is not a JSON object"));
  EXPECT_THAT(problem_of("{}"), HasSubstr("no pre_tokenizer"));
  const std::string whole = small_tokenizer().dump();
  EXPECT_THAT(problem_of(whole.substr(0, whole.size() / 2)), HasSubstr("t.json:1: not valid JSON"));
  says("no object \"model\"", [](json& f) { f.erase("model"); });
  says("no object \"vocab\"", [](json& f) { f["model"]["vocab"] = 3; });
  says("the vocabulary is empty", [](json& f) { f["model"]["vocab"] = json::object(); });
  says("the id of 'th' is -1", [](json& f) { f["model"]["vocab"]["th"] = -1; });
  says("the id of 'th' is 1e+300", [](json& f) { f["model"]["vocab"]["th"] = 1e300; });
  says("the id of 'th' is 99999999999", [](json& f) { f["model"]["vocab"]["th"] = 99999999999; });
  says("id 3 belongs to", [](json& f) { f["model"]["vocab"]["th"] = 3; });
  says("merge 4 needs token 'q!'", [](json& f) { f["model"]["merges"].push_back("q !"); });
  says("merge 4 is 'th'", [](json& f) { f["model"]["merges"].push_back("th"); });
  says("merge 4 is neither", [](json& f) { f["model"]["merges"].push_back({"a", "b", "c"}); });
  says("model.merges is not a list", [](json& f) { f["model"]["merges"] = "th"; });
  says("added token 'th' has id 300, but 256 before", [](json& f) {
    f["added_tokens"].push_back({{"id", 300}, {"content", "th"}});
  });
  says("token without content", [](json& f) { f["added_tokens"].push_back({{"id", 300}, {"content", ""}}); });
  says("id 5 belongs to", [](json& f) { f["added_tokens"].push_back({{"id", 5}, {"content", "<x>"}}); });
  says("\"lstrip\" is not true or false", [](json& f) { f["added_tokens"][0]["lstrip"] = "yes"; });
}

TEST(TokenizerFile, OfBytesHasATokenForEachByte) {
  const Tokenizer tokenizer(parse_tokenizer(bytes_tokenizer(), "bytes"));
  EXPECT_EQ(tokenizer.vocabulary(), 256);
  for (int byte = 0; byte < 256; ++byte) {
    EXPECT_EQ(tokenizer.token_of_byte(static_cast<uint8_t>(byte)), byte);
    EXPECT_EQ(tokenizer.bytes_of(byte), std::string(1, static_cast<char>(byte)));
  }
}

TEST(TokenizerFile, IsFoundBesideTheTokenFiles) {
  namespace fs = std::filesystem;
  const fs::path folder = fs::path(testing::TempDir()) / "yoke_tokenizer_beside";
  fs::create_directories(folder);
  fs::remove(folder / kTokenizerName);
  write_file_atomically(folder / "train.bin", "ab");
  EXPECT_FALSE(tokenizer_of("tokens", folder.string()));
  write_file_atomically(folder / kTokenizerName, "{}");
  EXPECT_EQ(tokenizer_of("tokens", folder.string()), folder / kTokenizerName);
  EXPECT_EQ(tokenizer_of("tokens", (folder / "train.bin").string()), folder / kTokenizerName);
  EXPECT_FALSE(tokenizer_of("libsvm", folder.string()));
  fs::remove_all(folder);
}

}  // namespace
}  // namespace yoke::data
