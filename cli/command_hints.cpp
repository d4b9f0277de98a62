#include "cli/command_hints.h"

#include <CLI/CLI.hpp>

#include <algorithm>

#include "cli/lab.h"
#include "yoke/base/error.h"
#include "yoke/base/text.h"

namespace yoke::cli {
namespace {

// Names used by other programs.
constexpr std::pair<const char*, const char*> kHabits[] = {
    {"--nproc-per-node", "--nproc"}, {"--np", "--nproc"},          {"--num-processes", "--nproc"},
    {"--max-steps", "--steps"},      {"--weights", "--init"},      {"--out", "--output"},
    {"--world-size", "--nproc"},     {"--gpus", "--nproc"},        {"--devices", "--nproc"},
    {"--resume-from", "--resume"},   {"--checkpoint", "--resume"},
};

// The same for configuration keys.
constexpr std::pair<const char*, const char*> kKeyHabits[] = {
    {"--fp16", "--train.precision fp16"},
    {"--bf16", "--train.precision bf16"},
    {"--amp", "--train.precision bf16"},
    {"--gradient-checkpointing", "--train.recompute blocks"},
};

std::vector<std::string> options_of(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options())
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  return names;
}

// `typed` starts with two dashes.
std::string nearest_option(const CLI::App& command, const std::string& typed, const config::Schema* schema) {
  std::vector<std::string> own = options_of(command);
  std::string name = typed;
  std::replace(name.begin() + 2, name.end(), '_', '-');
  for (auto& [habit, meant] : kHabits)
    if (name == habit && std::find(own.begin(), own.end(), meant) != own.end()) return meant;
  for (auto& [habit, meant] : kKeyHabits)
    if (name == habit && schema != nullptr) return meant;
  std::string key = schema != nullptr ? schema->nearest_key(typed.substr(2)) : "";
  return key.empty() ? nearest_name(name, own) : "--" + key;
}

}  // namespace

void check_commands(const CLI::App& app, const std::vector<std::string>& words) {
  const CLI::App* at = &app;
  std::string path = app.get_name();
  for (const std::string& word : words) {
    std::vector<std::string> names;
    const CLI::App* next = nullptr;
    for (const CLI::App* one : at->get_subcommands([](const CLI::App*) { return true; })) {
      names.push_back(one->get_name());
      if (one->get_name() == word) next = one;
    }
    if (names.empty() || word.rfind('-', 0) == 0) return;
    std::string near = nearest_name(word, names);
    if (next == nullptr)
      throw ConfigError("`{} {}`: there is no such command. {}`{} --help` lists them.", path, word,
                        near.empty() ? "" : fmt::format("Did you mean `{} {}`? ", path, near), path);
    at = next;
    path += " " + word;
  }
}

bool reads_configuration(const std::string& command) {
  return command == "train" || command == "eval" || command.rfind("model ", 0) == 0 ||
         std::ranges::any_of(labs(),
                             [&](const LabRow& row) { return row.trains && command == "lab " + row.name; }) ||
         command == "collab start" || command == "collab join" || command == "bench step" ||
         command == "bench scaling" || command == "verify" || command == "profile" || command == "estimate" ||
         command == "config show";
}

void refuse_extras(const CLI::App& app, const config::Schema& schema) {
  const CLI::App* command = &app;
  std::string name;
  for (; !command->get_subcommands().empty(); name += (name.empty() ? "" : " ") + command->get_name())
    command = command->get_subcommands().front();
  std::vector<std::string> extras = app.remaining(/*recurse=*/true);
  auto option = std::find_if(extras.begin(), extras.end(),
                             [](const std::string& word) { return word.size() > 1 && word[0] == '-'; });
  if (option == extras.end())
    throw ConfigError("{}: `yoke {}` does not accept this argument. `yoke {} --help` shows its usage.",
                      extras.front(), name, name);
  std::string typed = option->substr(0, option->find('='));
  bool keys = reads_configuration(name);
  std::string near = typed.size() > 3 && typed.rfind("--", 0) == 0
                         ? nearest_option(*command, typed, keys ? &schema : nullptr)
                         : "";
  throw ConfigError("{}: `yoke {}` has no such option. {}`yoke {} --help` lists its options{}.", typed, name,
                    near.empty() ? "" : fmt::format("Did you mean {}? ", near), name,
                    keys ? ", `yoke config keys` the configuration keys" : "");
}

}  // namespace yoke::cli
