#include "yoke/config/schema.h"

#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <set>

#include "yoke/base/error.h"
#include "yoke/base/file.h"
#include "yoke/base/text.h"
#include "yoke/config/tables.h"
#include "yoke/config/toml_library.h"
#include "yoke/config/toml_text.h"

namespace yoke::config {
namespace {

constexpr int64_t kLargestConfiguration = 1 << 20;

std::optional<Value> convert(const toml::node& node) {
  if (auto flag = node.value_exact<bool>()) return Value(*flag);
  if (auto whole = node.value_exact<int64_t>()) return Value(*whole);
  if (auto real = node.value_exact<double>()) return Value(*real);
  if (auto text = node.value_exact<std::string>()) return Value(from_ascii(*text));
  const toml::array* array = node.as_array();
  if (array == nullptr) return std::nullopt;
  Array elements;
  for (const toml::node& element : *array) {
    auto converted = convert(element);
    if (!converted) return std::nullopt;
    elements.push_back(std::move(*converted));
  }
  return Value(std::move(elements));
}

// Keys whose value is a list of tables, which their fields read as a text (config/tables.h).
bool holds_tables(std::string_view key) {
  return key == "train.groups";
}

// Empty: the node is something else.
std::optional<Value> convert_tables(const toml::node& node) {
  const toml::array* array = node.as_array();
  if (array == nullptr) return std::nullopt;
  std::vector<std::string> rows;
  for (const toml::node& element : *array) {
    const toml::table* table = element.as_table();
    if (table == nullptr) return std::nullopt;
    TableRow row;
    for (auto&& [key, value] : *table) {
      std::optional<Value> converted = convert(value);
      if (!converted) return std::nullopt;
      row.emplace_back(from_ascii(key.str()), std::move(*converted));
    }
    rows.push_back(config::to_toml(row));
  }
  return Value(Text{"[" + join(rows) + "]"});
}

// For `name = mlp` without quotes, a common mistake of YAML users.
std::string quoting_hint(std::string_view text, size_t number) {
  std::vector<std::string> lines = split(text, '\n');
  if (number < 1 || number > lines.size()) return "";
  const std::string& line = lines[number - 1];
  size_t equals = line.find('=');
  if (equals == std::string::npos) return "";
  std::string value = trim(line.substr(equals + 1, line.find('#') - equals - 1));
  auto plain = [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '_' || c == '-' || c == '.' || c == '/';
  };
  if (value.empty() || std::isalpha(static_cast<unsigned char>(value[0])) == 0 ||
      !std::all_of(value.begin(), value.end(), plain))
    return "";
  return fmt::format(" Strings need quotes: {} = \"{}\".", trim(line.substr(0, equals)), value);
}

std::string place(const std::string& file, const toml::source_region& source) {
  return fmt::format("{}:{}", file, source.begin.line);
}

// Names of our keys in other programs.
constexpr std::pair<const char*, const char*> kOtherNames[] = {
    {"learning_rate", "train.lr"},
    {"batch", "data.batch_size"},
    {"bs", "data.batch_size"},
    {"wd", "train.weight_decay"},
    {"num_epochs", "train.epochs"},
    {"max_epochs", "train.epochs"},
    {"max_steps", "train.steps"},
    {"num_steps", "train.steps"},
    {"num_workers", "data.workers"},
    {"random_seed", "train.seed"},
    {"dtype", "train.precision"},
    {"gradient_accumulation_steps", "train.accumulate"},
    {"block_size", "data.seq_len"},
    {"gradient_checkpointing", "train.recompute"},
    {"output_dir", "out.dir"},
    {"sequence_length", "data.seq_len"},
    {"max_grad_norm", "train.clip_norm"},
};

[[noreturn]] void unknown_key(const Schema& schema, std::string_view key, const std::string& origin) {
  std::set<std::string> sections;
  for (const Entry& entry : schema.entries()) sections.insert(entry.section);
  std::string near = schema.nearest_key(key);
  std::string hint = near.empty() ? fmt::format("Sections are {}; `yoke config keys` lists every key.",
                                                join({sections.begin(), sections.end()}))
                                  : fmt::format("Did you mean `{}`?", near);
  throw ConfigError("{}: unknown key `{}`. {}", origin, key, hint);
}

}  // namespace

std::string value_text(const Entry& entry, const Value& value) {
  if (!holds_tables(entry.key())) return to_toml(value);
  const std::string& text = std::get<std::string>(value);
  return text.empty() ? "[]" : text;
}

void Schema::add_section(std::string name, const Fields& fields) {
  for (const Field& field : fields.list()) {
    YOKE_CHECK(find(name + "." + field.name) == nullptr, "key {}.{} is described twice", name, field.name);
    entries_.push_back({name, field, field.get()});
  }
}

std::string Schema::nearest_key(std::string_view name) const {
  std::string typed(name);
  std::replace(typed.begin(), typed.end(), '-', '_');
  size_t dot = typed.find('.');
  std::string field = dot == std::string::npos ? typed : typed.substr(dot + 1);
  std::vector<std::string> keys, names;
  for (const Entry& entry : entries_) {
    keys.push_back(entry.key());
    names.push_back(entry.field.name);
  }
  for (auto& [other, key] : kOtherNames) names.emplace_back(other);
  auto with_name = [&](const std::string& wanted) -> std::string {
    for (auto& [other, key] : kOtherNames)
      if (wanted == other && has(key)) return key;
    std::vector<std::string> same;
    for (const Entry& entry : entries_)
      if (entry.field.name == wanted) same.push_back(entry.key());
    std::string near = nearest_name(typed, same);
    return near.empty() && !same.empty() ? same.front() : near;
  };
  // A field of exactly that name in another section is more likely than a similar one in this section.
  std::string found = with_name(field);
  if (found.empty() && dot != std::string::npos) found = nearest_name(typed, keys);
  return found.empty() ? with_name(nearest_name(field, names)) : found;
}

Entry* Schema::find(std::string_view key) {
  auto found =
      std::find_if(entries_.begin(), entries_.end(), [&](const Entry& entry) { return entry.key() == key; });
  return found == entries_.end() ? nullptr : &*found;
}

bool Schema::has(std::string_view key) const {
  return const_cast<Schema*>(this)->find(key) != nullptr;
}

const Entry& Schema::at(std::string_view key) const {
  const Entry* entry = const_cast<Schema*>(this)->find(key);
  YOKE_CHECK(entry != nullptr, "no key {}", key);
  return *entry;
}

void Schema::assign(std::string_view key, const Value& value, const std::string& origin) {
  Entry* entry = find(key);
  if (entry == nullptr) unknown_key(*this, key, origin);
  entry->corrects = entry->corrects || !entry->is_initial();
  std::string accepted = entry->field.set(value);
  if (!accepted.empty()) {
    throw ConfigError("{}: {} = {}: expected {}.", origin, key, config::to_toml(value), accepted);
  }
  entry->origin = origin;
}

void Schema::read_file(const std::filesystem::path& path) {
  read_text(yoke::read_file(path, kLargestConfiguration), path.string());
}

void Schema::read_text(std::string_view text, const std::string& file_name) {
  if (text.substr(0, 3) == "\xEF\xBB\xBF") text.remove_prefix(3);  // a byte-order mark
  toml::parse_result parsed = toml::parse(to_ascii(text), file_name);
  if (!parsed) {
    throw ConfigError("{}: not valid TOML: {}.{}", place(file_name, parsed.error().source()),
                      from_ascii(parsed.error().description()),
                      quoting_hint(text, parsed.error().source().begin.line));
  }
  for (auto&& [section, node] : parsed.table()) {
    const std::string name(section.str());
    const toml::table* table = node.as_table();
    if (table == nullptr) {
      unknown_key(*this, name, place(file_name, node.source()));
    }
    for (auto&& [key, value] : *table) {
      std::string full = name + "." + std::string(key.str());
      std::string origin = place(file_name, value.source());
      std::optional<Value> converted = holds_tables(full) ? convert_tables(value) : std::nullopt;
      if (!converted) converted = convert(value);
      if (!converted) {
        if (find(full) == nullptr) unknown_key(*this, full, origin);
        throw ConfigError("{}: {} is a table or a date. Expected: {}.", origin, full, at(full).field.type);
      }
      assign(full, *converted, origin);
    }
  }
}

void Schema::set(const Override& change) {
  assign(change.key, Text{change.value}, change.origin);
}

void Schema::reset(std::string_view key) {
  Entry* entry = find(key);
  YOKE_CHECK(entry != nullptr, "no key {}", key);
  entry->field.set(entry->initial);
  entry->origin = "built-in";
}

std::string Schema::to_toml(bool origins) const {
  std::string out;
  std::string section;
  for (const Entry& entry : entries_) {
    if (entry.section != section) {
      section = entry.section;
      out += fmt::format("{}[{}]\n", out.empty() ? "" : "\n", section);
    }
    std::string line = fmt::format("{} = {}", entry.field.name, value_text(entry, entry.field.get()));
    out += origins ? fmt::format("{:<34}# {}\n", line, entry.origin) : line + "\n";
  }
  return out;
}

}  // namespace yoke::config
