#include "yoke/data/formats/text/tokenizer_file.h"

#include <nlohmann/json.hpp>
#include <unordered_map>

#include "yoke/base/error.h"
#include "yoke/base/file.h"
#include "yoke/base/json_text.h"
#include "yoke/data/formats/bytes.h"
#include "yoke/data/formats/text/byte_letters.h"

namespace yoke::data {
namespace {

using nlohmann::json;

constexpr int64_t kMostTokens = int64_t{1} << 22;

class Parser {
 public:
  Parser(const json& document, const std::string& file) : document_(document) { spec_.file = file; }

  TokenizerSpec parse() {
    if (!document_.is_object()) fail("is not a JSON object. Is it a tokenizer.json?");
    read_parts();
    const json& model = object(document_, "model");
    check_model(model);
    read_vocabulary(object(model, "vocab"));
    read_merges(member(model, "merges"));
    read_added(member(document_, "added_tokens"));
    return std::move(spec_);
  }

 private:
  template <class... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> text, Args&&... args) const {
    throw ConfigError("{}: {}", spec_.file, fmt::format(text, std::forward<Args>(args)...));
  }
  // What is not there is null.
  static const json& member(const json& at, const char* key) {
    static const json null;
    auto found = at.find(key);
    return found == at.end() ? null : *found;
  }
  const json& object(const json& at, const char* key) const {
    const json& value = member(at, key);
    if (!value.is_object()) fail("no object \"{}\". Is it a tokenizer.json?", key);
    return value;
  }
  bool flag(const json& at, const char* key, bool otherwise) const {
    const json& value = member(at, key);
    if (value.is_null()) return otherwise;
    if (!value.is_boolean()) fail("\"{}\" is not true or false.", key);
    return value.get<bool>();
  }
  std::string text(const json& at, const char* key) const {
    const json& value = member(at, key);
    if (!value.is_string()) fail("\"{}\" is not a text.", key);
    return value.get<std::string>();
  }
  static std::string type_of(const json& part) {
    const json& type = member(part, "type");
    return type.is_string() ? type.get<std::string>() : "unknown";
  }

  // The only member of a Sequence stands for it; null: none.
  const json& only(const char* key, const char* list) const {
    const json& part = member(document_, key);
    if (part.is_null()) return part;
    if (!part.is_object()) fail("\"{}\" is not an object.", key);
    if (type_of(part) != "Sequence") return part;
    const json& all = member(part, list);
    if (!all.is_array()) fail("\"{}\" is a Sequence without \"{}\".", key, list);
    if (all.empty()) return member(part, "");
    if (all.size() > 1) {
      std::string types;
      for (const json& one : all)
        types += (types.empty() ? "" : ", ") + (one.is_object() ? type_of(one) : "?");
      fail("{} is a sequence of {}; byte-level BPE with GPT-2's pattern has only ByteLevel.", key, types);
    }
    if (!all[0].is_object()) fail("\"{}\" is a Sequence of other than objects.", key);
    return all[0];
  }

  void read_parts() {
    const json& normalizer = only("normalizer", "normalizers");
    if (!normalizer.is_null()) fail("normalizer {}: byte-level BPE has none.", type_of(normalizer));
    const json& cut = only("pre_tokenizer", "pretokenizers");
    if (cut.is_null()) fail("no pre_tokenizer: byte-level BPE has ByteLevel.");
    if (type_of(cut) != "ByteLevel") fail("pre_tokenizer {}: byte-level BPE has ByteLevel.", type_of(cut));
    const json& decoder = only("decoder", "decoders");
    if (!decoder.is_null() && type_of(decoder) != "ByteLevel")
      fail("decoder {}: byte-level BPE has ByteLevel.", type_of(decoder));
    spec_.add_prefix_space = flag(cut, "add_prefix_space", true);
    spec_.cut_words = flag(cut, "use_regex", true);
  }

  void check_model(const json& model) {
    if (model.contains("type") && type_of(model) != "BPE")
      fail("model {}: only byte-level BPE is supported.", type_of(model));
    for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
      const json& value = member(model, key);
      if (!value.is_null() && value != "") fail("model.{} {}: byte-level BPE has none.", key, value.dump());
    }
    const json& dropout = member(model, "dropout");
    if (!dropout.is_null() && dropout != 0) fail("model.dropout {}: its tokens are random.", dropout.dump());
    spec_.ignore_merges = flag(model, "ignore_merges", false);
  }

  TokenId id_of(const json& value, const std::string& token) const {
    if (!value.is_number_integer() || value < 0 || value >= kMostTokens)
      fail("the id of {} is {}; expected an integer of 0 to {}.", quote(token), value.dump(),
           kMostTokens - 1);
    return value.get<TokenId>();
  }
  void set_bytes(TokenId id, const std::string& token, std::string bytes) {
    const auto at = static_cast<size_t>(id);
    if (at >= spec_.tokens.size()) spec_.tokens.resize(at + 1);
    if (!spec_.tokens[at].empty()) fail("id {} belongs to {} and to another token.", id, quote(token));
    spec_.tokens[at] = std::move(bytes);
  }

  void read_vocabulary(const json& vocabulary) {
    ids_.reserve(vocabulary.size());
    for (const auto& [token, value] : vocabulary.items()) {
      if (token.empty()) fail("the vocabulary has an empty token.");
      const TokenId id = id_of(value, token);
      set_bytes(id, token, bytes_of_letters(token).value_or(token));
      ids_.emplace(token, id);
    }
    if (ids_.empty()) fail("the vocabulary is empty.");
  }

  TokenId known(const std::string& token, size_t rank) const {
    auto found = ids_.find(token);
    if (found == ids_.end())
      fail("merge {} needs token {}, which is not in the vocabulary.", rank, quote(token));
    return found->second;
  }
  void read_merges(const json& merges) {
    if (!merges.is_array()) fail("model.merges is not a list.");
    spec_.merges.reserve(merges.size());
    for (const json& merge : merges) {
      const size_t rank = spec_.merges.size();
      const auto [left, right] = two(merge, rank);
      spec_.merges.push_back({known(left, rank), known(right, rank), known(left + right, rank)});
    }
  }
  // "a b", or since 2024 ["a", "b"].
  std::pair<std::string, std::string> two(const json& merge, size_t rank) const {
    if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string())
      return {merge[0].get<std::string>(), merge[1].get<std::string>()};
    if (!merge.is_string()) fail("merge {} is neither \"a b\" nor [\"a\", \"b\"].", rank);
    const auto& both = merge.get_ref<const std::string&>();
    const size_t blank = both.find(' ');
    if (blank == std::string::npos || both.find(' ', blank + 1) != std::string::npos)
      fail("merge {} is {}; expected two tokens with one blank between them.", rank, quote(both));
    return {both.substr(0, blank), both.substr(blank + 1)};
  }

  void read_added(const json& added) {
    if (added.is_null()) return;
    if (!added.is_array()) fail("added_tokens is not a list.");
    for (const json& one : added) {
      if (!one.is_object()) fail("added_tokens has a member that is not an object.");
      AddedToken token;
      token.content = text(one, "content");
      if (token.content.empty()) fail("added_tokens has a token without content.");
      token.id = id_of(member(one, "id"), token.content);
      token.lstrip = flag(one, "lstrip", false);
      token.rstrip = flag(one, "rstrip", false);
      token.normalized = flag(one, "normalized", true);
      if (flag(one, "single_word", false))
        fail("added token {} has single_word, which is not supported.", quote(token.content));
      place_added(token);
      spec_.added.push_back(std::move(token));
    }
  }
  void place_added(const AddedToken& token) {
    auto [found, is_new] = ids_.emplace(token.content, token.id);
    if (is_new) return set_bytes(token.id, token.content, token.content);
    if (found->second != token.id)
      fail("added token {} has id {}, but {} before.", quote(token.content), token.id, found->second);
  }

  const json& document_;
  TokenizerSpec spec_;
  std::unordered_map<std::string, TokenId> ids_;
};

}  // namespace

TokenizerSpec parse_tokenizer(std::string_view text, const std::string& file) {
  const json document = parse_json(text, file);
  return Parser(document, file).parse();
}

std::unique_ptr<Tokenizer> read_tokenizer(const std::filesystem::path& path) {
  return std::make_unique<Tokenizer>(parse_tokenizer(read_file(path, kMostTokenizerBytes), path.string()));
}

std::optional<std::filesystem::path> tokenizer_of(const std::string& data_name, const std::string& data_dir) {
  namespace fs = std::filesystem;
  if (data_name != "tokens") return std::nullopt;
  fs::path place = data_dir.empty() ? fs::path("data") / data_name : fs::path(data_dir);
  std::error_code ignored;  // unreadable counts as missing
  if (fs::is_regular_file(place, ignored)) place = place.parent_path();
  if (!fs::is_regular_file(place / kTokenizerName, ignored)) return std::nullopt;
  return place / kTokenizerName;
}

}  // namespace yoke::data
