#include "yoke/optim/settings.h"

#include <fnmatch.h>

#include <algorithm>

#include "yoke/base/error.h"
#include "yoke/base/text.h"

namespace yoke::optim {
namespace {

// "layer1.0.conv1.weight" -> "layer1.*", "*.weight": what people mean by a group.
std::vector<std::string> likely_patterns(const std::vector<NamedTensor>& parameters) {
  std::vector<std::string> all;
  for (const auto& [name, tensor] : parameters) {
    all.push_back(name);
    for (size_t dot = name.find('.'); dot != std::string::npos; dot = name.find('.', dot + 1)) {
      all.push_back(name.substr(0, dot) + ".*");
      all.push_back("*" + name.substr(dot));
    }
  }
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  return all;
}

std::string some_names(const std::vector<NamedTensor>& parameters) {
  constexpr size_t kShown = 6;
  std::vector<std::string> names;
  for (const auto& [name, tensor] : parameters)
    if (names.size() < kShown) names.push_back(name);
  return join(names) + (parameters.size() > kShown ? fmt::format(", … ({} in all)", parameters.size()) : "");
}

[[noreturn]] void matches_nothing(const std::string& pattern, const std::vector<NamedTensor>& parameters) {
  const std::string near = nearest_name(pattern, likely_patterns(parameters));
  throw ConfigError("train.groups: match = \"{}\" fits no parameter of the model.{} Its parameters: {}",
                    pattern, near.empty() ? "" : fmt::format(" Did you mean \"{}\"?", near),
                    some_names(parameters));
}

ParameterSettings settings_for(const OptimizerOptions& options, const std::vector<ParameterGroup>& groups,
                               const NamedTensor& parameter) {
  ParameterSettings settings;
  settings.matrix = parameter.second.dim() >= 2;
  settings.weight_decay = settings.matrix || options.decay_biases ? options.weight_decay : 0;
  for (const ParameterGroup& group : groups) {
    if (!matches(group.match, parameter.first)) continue;
    settings.lr = group.lr;
    settings.freeze = group.freeze;
    if (group.weight_decay >= 0) settings.weight_decay = group.weight_decay;
    break;
  }
  return settings;
}

}  // namespace

bool matches(const std::string& pattern, const std::string& name) {
  return fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
}

OptimizerOptions with_settings(OptimizerOptions options, const std::vector<NamedTensor>& parameters) {
  std::string problem;
  const std::vector<ParameterGroup> groups = read_groups(options.groups, problem);
  if (!problem.empty()) throw ConfigError("train.groups = {}: expected {}.", options.groups, problem);
  for (const ParameterGroup& group : groups)
    if (std::none_of(parameters.begin(), parameters.end(),
                     [&](const NamedTensor& one) { return matches(group.match, one.first); }))
      matches_nothing(group.match, parameters);
  options.settings.clear();
  for (const NamedTensor& one : parameters) options.settings[one.first] = settings_for(options, groups, one);
  auto frozen = [](const auto& one) { return one.second.freeze; };
  if (!parameters.empty() && std::all_of(options.settings.begin(), options.settings.end(), frozen))
    throw ConfigError("train.groups = {}: every parameter is frozen, so nothing is trained.", options.groups);
  return options;
}

ParameterSettings settings_of(const OptimizerOptions& options, const std::string& name) {
  auto found = options.settings.find(name);
  if (found == options.settings.end()) found = options.settings.find(name.substr(0, name.rfind('@')));
  if (found != options.settings.end()) return found->second;
  return {.weight_decay = options.weight_decay};
}

bool has_groups(const OptimizerOptions& options) {
  return std::any_of(options.settings.begin(), options.settings.end(), [&](const auto& one) {
    return one.second.lr != 1 || one.second.weight_decay != options.weight_decay;
  });
}

}  // namespace yoke::optim
