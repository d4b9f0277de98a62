#include <fmt/core.h>

#include <filesystem>
#include <map>

#include "cli/output.h"
#include "cli/torch/commands.h"
#include "yoke/base/error.h"
#include "yoke/base/units.h"
#include "yoke/checkpoint/checkpoint.h"
#include "yoke/checkpoint/format/folder.h"
#include "yoke/checkpoint/tensors.h"
#include "yoke/checkpoint/weights.h"
#include "yoke/optim/optimizer.h"

namespace yoke::cli {
namespace {

namespace format = checkpoint::format;

// Which blocks each stage of a pipeline had when it was saved; empty for other layouts.
nlohmann::json saved_stages(const format::Verdict& verdict) {
  if (!verdict.ok) return nullptr;
  nlohmann::json state = format::read_manifest(verdict.path).state;
  return state.value("stages", nlohmann::json::array());
}

std::string stages_text(const nlohmann::json& stages) {
  std::string text;
  for (const auto& one : stages)
    text += fmt::format("       stage {}: {} to {}\n", one.value("stage", 0), one.value("first", ""),
                        one.value("last", ""));
  return text;
}

int print_verdicts(const CommandLine& line, const std::vector<format::Verdict>& verdicts) {
  bool ok = true;
  nlohmann::json rows = nlohmann::json::array();
  for (const format::Verdict& verdict : verdicts) {
    ok = ok && verdict.ok;
    nlohmann::json row = {{"path", verdict.path.string()},
                          {"step", verdict.step},
                          {"ok", verdict.ok},
                          {"bytes", verdict.bytes}};
    if (!verdict.ok) row["problem"] = verdict.problem;
    nlohmann::json stages = saved_stages(verdict);
    if (!stages.empty()) row["stages"] = stages;
    rows.push_back(row);
    if (line.json) continue;
    fmt::print("{:<4} step {:<8} {:>10}  {}{}\n", verdict.ok ? "ok" : "BAD", verdict.step,
               format_bytes(static_cast<double>(verdict.bytes)), verdict.path.string(),
               verdict.ok ? "" : ": " + verdict.problem);
    fmt::print("{}", stages_text(stages));
  }
  if (line.json) print_json({{"ok", ok}, {"checkpoints", rows}});
  return ok ? 0 : static_cast<int>(ExitCode::kCheckpoint);
}

void require_some(const std::vector<format::Verdict>& verdicts, const std::string& path) {
  if (verdicts.empty()) {
    throw CheckpointError("{}: no checkpoint here. A run's folder has them in checkpoints/step-N.", path);
  }
}

// Weights as fp32 where the optimizer keeps such masters.
std::vector<optim::NamedTensor> published_weights(const checkpoint::State& state) {
  std::map<std::string, torch::Tensor> masters;
  for (const auto& [name, tensor] : state.optimizer) {
    if (name.rfind("master/", 0) == 0) masters[name.substr(7)] = tensor;
  }
  std::vector<optim::NamedTensor> weights = state.model;
  for (auto& [name, tensor] : weights) {
    if (auto found = masters.find(name); found != masters.end()) tensor = found->second;
  }
  return weights;
}

}  // namespace

int run_checkpoint_list(const CommandLine& line) {
  auto verdicts = format::list(line.checkpoint.path);
  require_some(verdicts, line.checkpoint.path);
  print_verdicts(line, verdicts);
  return 0;
}

int run_checkpoint_verify(const CommandLine& line) {
  auto verdicts = format::verify(line.checkpoint.path);
  require_some(verdicts, line.checkpoint.path);
  return print_verdicts(line, verdicts);
}

int run_checkpoint_export(const CommandLine& line) {
  auto loaded = checkpoint::load_newest(line.checkpoint.path);
  if (!loaded) require_some({}, line.checkpoint.path);
  std::vector<optim::NamedTensor> weights = published_weights(loaded->state);
  checkpoint::save_tensors(line.checkpoint.output, weights, {{"format", "pt"}});
  if (line.json) {
    print_json({{"file", line.checkpoint.output}, {"step", loaded->step}, {"tensors", weights.size()}});
  } else {
    fmt::print("{}: {} tensors of step {}\n", line.checkpoint.output, weights.size(), loaded->step);
  }
  return 0;
}

int run_checkpoint_import(const CommandLine& line) {
  checkpoint::State state;
  state.model = checkpoint::load_weights(line.checkpoint.path);
  state.rest = {{"weights_only", true}};
  checkpoint::Writer writer(std::filesystem::path(line.checkpoint.output) / "checkpoints", {});
  writer.save(0, state);
  writer.wait();
  if (line.json) {
    print_json({{"run", line.checkpoint.output}, {"tensors", state.model.size()}});
  } else {
    fmt::print("{}: checkpoint of step 0 with {} tensors; train with --out.dir {}\n", line.checkpoint.output,
               state.model.size(), line.checkpoint.output);
  }
  return 0;
}

}  // namespace yoke::cli
