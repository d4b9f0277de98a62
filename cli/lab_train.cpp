#include "cli/lab_train.h"

#include <fmt/core.h>

#include <algorithm>

#include "yoke/base/error.h"
#include "yoke/base/file.h"
#include "yoke/base/json_text.h"
#include "yoke/metrics/jsonl.h"

namespace yoke::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kNotFinite =
    " is not finite";  // in the error of such a run (train.non_finite = "stop")

std::vector<std::string> words_of(const std::string& file, const fs::path& folder, int ranks,
                                  const LabTraining::Settings& settings) {
  std::vector<std::string> words = {"train", file, "--resume", "never", "-q"};
  words.insert(words.end(), {"--nproc", fmt::format("{}", ranks)});
  auto set = [&](const std::string& key, const std::string& value) {
    words.push_back("--" + key);
    words.push_back(value);
  };
  set("checkpoint.every_steps", "0");
  set("out.dir", folder.string());
  set("out.tensorboard", "false");
  set("out.report", "false");
  for (const auto& [key, value] : settings) set(key, value);
  return words;
}

}  // namespace

LabTraining::LabTraining(const Lab& lab, const std::string& file, const std::string& name, int ranks,
                         const Settings& settings)
    : name_(name),
      folder_(lab.out / name),
      job_(lab_job(lab.line, words_of(file, folder_, ranks, settings))) {
  job_.launch.stdout_is_hidden = true;
}

TrainedRun LabTraining::run() const {
  fs::remove(folder_ / "metrics.jsonl");
  fs::remove(folder_ / "summary.json");
  const cluster::LaunchResult result = cluster::launch(job_.launch);
  if (result.exit_code != 0) {
    const auto code = static_cast<ExitCode>(result.exit_code);
    const bool diverged = code == ExitCode::kUsage && result.error.find(kNotFinite) != std::string::npos;
    if (diverged) throw Diverged(name_ + ": " + result.error);
    throw Error(code, name_ + " failed; see above");
  }
  TrainedRun run;
  run.records = metrics::read_records(folder_ / "metrics.jsonl").records;
  const fs::path summary = folder_ / "summary.json";
  run.summary = parse_json(read_file(summary), summary.string());
  return run;
}

std::string recipe_of(const Lab& lab, const std::string& file, const std::string& toml) {
  if (!file.empty()) return file;
  const fs::path own = lab.out / "recipe.toml";
  write_file_atomically(own, toml);
  return own.string();
}

double end_loss(const std::vector<metrics::Record>& records) {
  const size_t count = std::max<size_t>(1, records.size() / 10);
  double sum = 0;
  for (size_t i = records.size() - std::min(count, records.size()); i < records.size(); ++i)
    sum += records[i].loss / static_cast<double>(count);
  return sum;
}

}  // namespace yoke::cli
