#include "yoke/engine/tracked.h"

#include "yoke/base/error.h"
#include "yoke/base/json_text.h"

namespace yoke::engine {
namespace {

// Weights under their own names can be loaded by other programs.
std::string prefix_of(const std::string& name, const Tracked& one) {
  return one.in_model && name == "model" ? "" : name + "/";
}

void add(NamedTensors& to, const std::string& prefix, const NamedTensors& tensors) {
  for (const auto& [name, tensor] : tensors) to.emplace_back(prefix + name, tensor);
}

// The tensors of `name`, without its prefix. If it has none: those without any other's prefix.
NamedTensors tensors_of(const std::string& name, const TrackedList& all, const NamedTensors& saved) {
  const std::string own = prefix_of(name, all.at(name));
  NamedTensors found;
  for (const auto& [full, tensor] : saved) {
    bool ours = full.starts_with(own);
    for (const auto& [other, tracked] : all)
      if (own.empty() && other != name && full.starts_with(prefix_of(other, tracked))) ours = false;
    if (ours) found.emplace_back(full.substr(own.size()), tensor);
  }
  return found;
}

[[noreturn]] void refuse_names(const std::string& where, const nlohmann::json& saved,
                               const nlohmann::json& now) {
  throw CheckpointError(
      "{}: it holds {}, and this run tracks {}. Track the same things under the same names, or start in "
      "another "
      "folder.",
      where, saved.dump(), now.dump());
}

nlohmann::json kinds(const TrackedList& all) {
  nlohmann::json list = nlohmann::json::object();
  for (const auto& [name, one] : all) list[name] = one.kind;
  return list;
}

}  // namespace

checkpoint::State collect(const TrackedList& all, int rank, int size) {
  NamedTensors model, buffers, optimizer;
  checkpoint::State state;
  nlohmann::json values = nlohmann::json::object();
  for (const auto& [name, one] : all) {
    const std::string prefix = prefix_of(name, one);
    if (one.tensors) add(one.in_model ? model : optimizer, prefix, one.tensors());
    if (one.buffers) add(buffers, prefix, one.buffers());
    if (one.values) values[name] = one.values();
  }
  state.model = checkpoint::share_of(model, rank, size);
  if (rank == 0) state.model.insert(state.model.end(), buffers.begin(), buffers.end());
  state.optimizer = checkpoint::share_of(optimizer, rank, size);
  state.rest = {{"tracked", kinds(all)}, {"values", std::move(values)}};
  return state;
}

void restore(const TrackedList& all, const checkpoint::State& saved, const std::string& where) {
  try {
    if (saved.rest.at("tracked") != kinds(all)) refuse_names(where, saved.rest.at("tracked"), kinds(all));
    const nlohmann::json& values = saved.rest.at("values");
    for (const auto& [name, one] : all)
      one.restore(tensors_of(name, all, one.in_model ? saved.model : saved.optimizer),
                  one.values ? values.at(name) : nlohmann::json(), fmt::format("{}, {}", where, name));
  } catch (const nlohmann::json::exception& error) {
    throw CheckpointError(
        "{}: not a checkpoint of a yoke::Run that tracked these things ({}). Start in another folder.", where,
        json_problem(error));
  }
}

}  // namespace yoke::engine
