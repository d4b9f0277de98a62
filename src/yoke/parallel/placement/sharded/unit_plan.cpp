#include "yoke/parallel/placement/sharded/unit_plan.h"

#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/container/sequential.h>

#include <unordered_map>

#include "yoke/base/error.h"
#include "yoke/parallel/common/ddp/same_model.h"

namespace yoke::parallel {
namespace {

bool is_list(const torch::nn::Module& module) {
  return module.as<torch::nn::ModuleList>() != nullptr || module.as<torch::nn::Sequential>() != nullptr;
}

std::string joined(const std::string& path, const std::string& name) {
  return path.empty() ? name : path + "." + name;
}

// The children, and those of lists in place of the lists.
void collect_children(const torch::nn::Module& module, const std::string& path,
                      std::vector<std::string>& names) {
  for (const auto& child : module.named_children()) {
    std::string name = joined(path, child.key());
    if (is_list(*child.value()) && !child.value()->children().empty())
      collect_children(*child.value(), name, names);
    else
      names.push_back(name);
  }
}

// "h.*" has as many parts as the names it stands for.
bool matches(const std::string& pattern, const std::string& name) {
  size_t p = 0, n = 0;
  while (p < pattern.size() && n < name.size()) {
    if (pattern[p] == '*') {
      ++p;
      while (n < name.size() && name[n] != '.') ++n;
    } else if (pattern[p++] != name[n++]) {
      return false;
    }
  }
  return p == pattern.size() && n == name.size();
}

std::vector<std::string> modules_named(const torch::nn::Module& module,
                                       const std::vector<std::string>& patterns) {
  std::vector<std::string> names;
  for (const std::string& pattern : patterns) {
    size_t before = names.size();
    for (const auto& item : module.named_modules("", /*include_self=*/false))
      if (matches(pattern, item.key()) && !item.value()->parameters().empty()) names.push_back(item.key());
    if (names.size() > before) continue;
    std::vector<std::string> known;
    collect_children(module, "", known);
    std::string list;
    for (const std::string& name : known) list += (list.empty() ? "" : ", ") + name;
    throw ConfigError("fully_shard: unit '{}' names no module with parameters. This module has {}.", pattern,
                      list.empty() ? "no children" : list);
  }
  return names;
}

// The longest of `names` that `parameter` lies under; empty: none.
std::string unit_of(const std::string& parameter, const std::vector<std::string>& names) {
  std::string best;
  for (const std::string& name : names)
    if (name.size() > best.size() && parameter.size() > name.size() && parameter[name.size()] == '.' &&
        parameter.compare(0, name.size(), name) == 0)
      best = name;
  return best;
}

// Cuts groups of parameters until each has one type.
std::vector<UnitPlan> split_by_type(const NamedTensors& parameters,
                                    const std::vector<std::pair<std::string, std::vector<size_t>>>& groups,
                                    std::optional<torch::ScalarType> gather_type) {
  std::vector<UnitPlan> plans;
  for (const auto& [name, members] : groups) {
    size_t first = plans.size();
    for (size_t index : members) {
      const torch::Tensor& parameter = parameters[index].second;
      bool narrow = gather_type && parameter.is_floating_point() && parameter.dim() > 1;
      torch::ScalarType type = narrow ? *gather_type : parameter.scalar_type();
      size_t at = first;
      auto fits = [&](const UnitPlan& plan) {
        const torch::Tensor& other = parameters[plan.parameters[0]].second;
        return plan.gather_type == type && plan.trained == parameter.requires_grad() &&
               other.scalar_type() == parameter.scalar_type();
      };
      while (at < plans.size() && !fits(plans[at])) ++at;
      if (at == plans.size()) plans.push_back({name, {}, type, parameter.requires_grad()});
      plans[at].parameters.push_back(index);
    }
  }
  return plans;
}

}  // namespace

std::vector<UnitPlan> plan_units(const torch::nn::Module& module, const std::vector<std::string>& names,
                                 std::optional<torch::ScalarType> gather_type) {
  std::vector<std::string> units;
  if (names.empty())
    collect_children(module, "", units);
  else
    units = modules_named(module, names);
  NamedTensors parameters = distinct_parameters(module);
  std::vector<std::pair<std::string, std::vector<size_t>>> groups;
  std::unordered_map<std::string, size_t> group_of;
  for (size_t i = 0; i < parameters.size(); ++i) {
    std::string unit = unit_of(parameters[i].first, units);
    auto [at, added] = group_of.emplace(unit, groups.size());
    if (added) groups.push_back({unit.empty() ? "rest" : unit, {}});
    groups[at->second].second.push_back(i);
  }
  return split_by_type(parameters, groups, gather_type);
}

std::vector<UnitPlan> plan_units(const models::Model& model, const ShardedPart& part,
                                 std::optional<torch::ScalarType> gather_type) {
  const NamedTensors& parameters = part.parameters;
  std::unordered_map<const void*, size_t> open;
  std::vector<std::pair<std::string, std::vector<size_t>>> groups;
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (part.apart.contains(parameters[i].first))
      groups.push_back({parameters[i].first, {i}});
    else
      open[parameters[i].second.unsafeGetTensorImpl()] = i;
  }
  for (const models::Block& block : model.blocks) {
    groups.push_back({block.name, {}});
    for (const auto& module : block.modules)
      for (const torch::Tensor& parameter : module->parameters())
        if (auto found = open.find(parameter.unsafeGetTensorImpl()); found != open.end()) {
          groups.back().second.push_back(found->second);
          open.erase(found);
        }
  }
  groups.push_back({"rest", {}});
  for (size_t i = 0; i < parameters.size(); ++i)
    if (open.count(parameters[i].second.unsafeGetTensorImpl()) > 0) groups.back().second.push_back(i);
  return split_by_type(parameters, groups, gather_type);
}

}  // namespace yoke::parallel
