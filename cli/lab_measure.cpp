#include "cli/lab_measure.h"

#include <fmt/core.h>

#include "cli/run_checks.h"
#include "cli/run_config.h"
#include "yoke/base/error.h"
#include "yoke/base/file.h"
#include "yoke/base/json_text.h"
#include "yoke/base/text.h"
#include "yoke/cluster/launcher/launcher.h"

namespace yoke::cli {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> words_for(const StepsToMeasure& steps, const fs::path& result) {
  std::vector<std::string> words = {"bench", "step", "-q", "--rank-result", result.string()};
  auto add = [&](const std::string& flag, const std::string& value) {
    words.push_back("--" + flag);
    words.push_back(value);
  };
  add("model", steps.model);
  add("precision", steps.precision);
  add("recompute", steps.recompute);
  add("device", steps.device);
  add("threads", fmt::format("{}", steps.threads));
  add("steps", fmt::format("{}", steps.steps));
  if (steps.batches.empty()) words.push_back("--largest-batch");
  std::vector<std::string> batches;
  for (int batch : steps.batches) batches.push_back(fmt::format("{}", batch));
  if (!batches.empty()) add("batch", join(batches, ","));
  if (steps.anatomy) words.push_back("--anatomy");
  for (const auto& [key, value] : steps.keys) add(key, value);
  return words;
}

}  // namespace

void check_steps(const StepsToMeasure& steps) {
  std::vector<config::Override> overrides = {{"model.name", steps.model, "model"},
                                             {"train.precision", steps.precision, "precision"},
                                             {"train.recompute", steps.recompute, "recompute"},
                                             {"train.device", steps.device, "--device"}};
  for (int batch : steps.batches)
    overrides.push_back({"data.batch_size", fmt::format("{}", batch), "batch size"});
  for (const auto& [key, value] : steps.keys) overrides.push_back({key, value, "--" + key});
  Configuration configuration;
  configuration.load("", overrides);
  check_memory(configuration.values);
}

void measure_steps(const Lab& lab, const StepsToMeasure& steps,
                   const std::function<void(nlohmann::json)>& take) {
  const fs::path result = lab.out / "measured.json";
  fs::remove(result);
  cluster::LaunchOptions job = cluster::own_job(1, words_for(steps, result));
  job.typed = lab.line.typed;
  job.rank0_speaks = false;
  job.stdout_is_taken = true;
  const int code = cluster::run_job(job);
  if (fs::exists(result))
    for (nlohmann::json& row : parse_json(read_file(result), result.string())) take(std::move(row));
  fs::remove(result);
  if (code != 0) throw Error(static_cast<ExitCode>(code), "the measuring process failed; see above");
}

}  // namespace yoke::cli
