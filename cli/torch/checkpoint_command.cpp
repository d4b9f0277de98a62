#include <fmt/core.h>

#include <filesystem>
#include <optional>

#include "cli/output.h"
#include "cli/torch/commands.h"
#include "cli/torch/hugging_face.h"
#include "yoke/base/error.h"
#include "yoke/base/file.h"
#include "yoke/base/json_text.h"
#include "yoke/base/units.h"
#include "yoke/checkpoint/checkpoint.h"
#include "yoke/checkpoint/format/folder.h"
#include "yoke/checkpoint/team.h"
#include "yoke/checkpoint/tensors.h"
#include "yoke/checkpoint/weights.h"
#include "yoke/data/formats/text/tokenizer_file.h"
#include "yoke/optim/optimizer.h"

namespace yoke::cli {
namespace {

namespace format = checkpoint::format;

// Its files with the tensors in each, and the pipeline stage that wrote it.
nlohmann::json saved_files(const format::Verdict& verdict, const format::Manifest& manifest) {
  nlohmann::json stages = manifest.state.value("stages_of_ranks", nlohmann::json::array());
  nlohmann::json files = nlohmann::json::array();
  for (const format::FileEntry& file : manifest.files) {
    if (!file.name.ends_with(".safetensors")) continue;
    nlohmann::json row = {{"name", file.name}, {"bytes", file.bytes}, {"tensors", nlohmann::json::array()}};
    std::optional<int> rank = checkpoint::rank_of_file(file.name);
    if (rank && static_cast<size_t>(*rank) < stages.size()) row["stage"] = stages[static_cast<size_t>(*rank)];
    for (const auto& one : checkpoint::load_tensors(verdict.path / file.name).tensors)
      row["tensors"].push_back(one.first);
    files.push_back(row);
  }
  return files;
}

std::string contents_text(const nlohmann::json& row) {
  std::string text;
  for (const auto& one : row.value("stages", nlohmann::json::array()))
    text += fmt::format("       stage {}: {} to {}\n", one.value("stage", 0), one.value("first", ""),
                        one.value("last", ""));
  for (const auto& file : row.value("files", nlohmann::json::array())) {
    const nlohmann::json& tensors = file["tensors"];
    if (tensors.empty() || row["files"].size() <= 2) continue;  // one of each kind: nothing to distinguish
    std::string stage = file.contains("stage") ? fmt::format(" (stage {})", file["stage"].get<int>()) : "";
    text +=
        fmt::format("       {}{}: {} tensors, {} to {}\n", file["name"].get<std::string>(), stage,
                    tensors.size(), tensors.front().get<std::string>(), tensors.back().get<std::string>());
  }
  return text;
}

// Contents: `files`, and for a pipeline `stages` (the blocks of each); the same as text.
std::string add_contents(nlohmann::json& row, const format::Verdict& verdict) {
  if (!verdict.ok) return "";
  try {
    format::Manifest manifest = format::read_manifest(verdict.path);
    nlohmann::json stages = manifest.state.value("stages", nlohmann::json::array());
    if (!stages.empty()) row["stages"] = stages;
    row["files"] = saved_files(verdict, manifest);
    return contents_text(row);
  } catch (const Error& error) {  // right size, but nothing else was checked
    row["problem"] = error.what();
  } catch (const nlohmann::json::exception& error) {  // an edited manifest
    row["problem"] = "manifest.json: " + json_problem(error);
  }
  row["ok"] = false;
  return "";
}

int print_verdicts(const CommandLine& line, const std::vector<format::Verdict>& verdicts) {
  bool ok = true;
  nlohmann::json rows = nlohmann::json::array();
  for (const format::Verdict& verdict : verdicts) {
    nlohmann::json row = {{"path", verdict.path.string()},
                          {"step", verdict.step},
                          {"ok", verdict.ok},
                          {"bytes", verdict.bytes}};
    if (!verdict.ok) row["problem"] = verdict.problem;
    std::string contents = add_contents(row, verdict);
    bool good = row["ok"];
    ok = ok && good;
    rows.push_back(row);
    if (line.json) continue;
    fmt::print("{:<4} step {:<8} {:>10}  {}{}\n", good ? "ok" : "BAD", verdict.step,
               format_bytes(static_cast<double>(verdict.bytes)), verdict.path.string(),
               good ? "" : ": " + row["problem"].get<std::string>());
    fmt::print("{}", contents);
  }
  if (line.json) print_json({{"ok", ok}, {"checkpoints", rows}});
  return ok ? 0 : static_cast<int>(ExitCode::kCheckpoint);
}

void require_some(const std::vector<format::Verdict>& verdicts, const std::string& path) {
  if (verdicts.empty()) {
    throw CheckpointError("{}: no checkpoint here. A run's folder has them in checkpoints/step-N.", path);
  }
}

// A folder means the file that transformers looks for in it.
std::filesystem::path weights_file(const std::string& output) {
  std::filesystem::path path = output;
  if (!output.ends_with('/') && !std::filesystem::is_directory(path)) return path;
  std::filesystem::create_directories(path);
  return path / "model.safetensors";
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
  std::vector<optim::NamedTensor> weights = published_weights(loaded->state, line.checkpoint.raw);
  const std::filesystem::path file = weights_file(line.checkpoint.output);
  checkpoint::save_tensors(file, weights, {{"format", "pt"}});
  auto config = hugging_face_config(weights, loaded->state.rest.value("configuration", ""));
  const std::filesystem::path config_file = file.parent_path() / "config.json";
  if (config) write_file_atomically(config_file, config->dump(2) + "\n");
  const std::filesystem::path tokenizer = run_of(*loaded) / data::kTokenizerName;
  const bool has_tokenizer = config && std::filesystem::exists(tokenizer);
  const std::filesystem::path tokenizer_file = file.parent_path() / data::kTokenizerName;
  if (has_tokenizer) write_file_atomically(tokenizer_file, read_file(tokenizer, data::kMostTokenizerBytes));
  if (line.json) {
    nlohmann::json told = {{"file", file.string()}, {"step", loaded->step}, {"tensors", weights.size()}};
    if (config) told["config"] = config_file.string();
    if (has_tokenizer) told["tokenizer"] = tokenizer_file.string();
    print_json(told);
  } else {
    fmt::print("{}: {} tensors of step {}\n", file.string(), weights.size(), loaded->step);
    if (config) fmt::print("{}: for transformers\n", config_file.string());
    if (has_tokenizer) fmt::print("{}: for transformers\n", tokenizer_file.string());
  }
  return 0;
}

int run_checkpoint_import(const CommandLine& line) {
  checkpoint::State state;
  state.model = checkpoint::load_weights(line.checkpoint.path);
  state.rest = {{"weights_only", true}};
  checkpoint::Writer writer(std::filesystem::path(line.checkpoint.output) / "checkpoints", {});
  writer.save(0, state);
  writer.confirm();
  if (line.json) {
    print_json({{"run", line.checkpoint.output}, {"tensors", state.model.size()}});
  } else {
    fmt::print("{}: checkpoint of step 0 with {} tensors; train with --out.dir {}\n", line.checkpoint.output,
               state.model.size(), line.checkpoint.output);
  }
  return 0;
}

}  // namespace yoke::cli
