#include "cli/torch/train_resume.h"

#include <nlohmann/json.hpp>
#include <numeric>

#include "cli/torch/train_output.h"
#include "yoke/base/error.h"
#include "yoke/base/file.h"
#include "yoke/base/log.h"
#include "yoke/base/text.h"
#include "yoke/checkpoint/weights.h"
#include "yoke/config/changes.h"
#include "yoke/engine/team.h"
#include "yoke/parallel/registry.h"

namespace yoke::cli {
namespace {

// A damaged one does not count as a result: it is written again.
std::optional<metrics::Summary> read_summary(const std::filesystem::path& out) {
  std::filesystem::path file = out / "summary.json";
  if (!std::filesystem::exists(file)) return std::nullopt;
  try {
    return metrics::parse_summary(read_file(file));
  } catch (const Error& error) {
    log::warn("{}: {}", file.string(), error.what());
    return std::nullopt;
  }
}

std::optional<checkpoint::Loaded> load_checkpoint(const TrainArguments& arguments,
                                                  const std::filesystem::path& out) {
  if (arguments.resume == "never") return std::nullopt;
  if (arguments.resume != "auto") return checkpoint::load(arguments.resume);
  return checkpoint::load_newest(out);
}

// What the first rank finds, as needed by the others.
nlohmann::json choose(Resume& resume, const TrainArguments& arguments, const std::filesystem::path& out) {
  resume.checkpoint = load_checkpoint(arguments, out);
  if (!resume.checkpoint) return nullptr;
  for (const auto& other : resume.checkpoint->passed_over)
    log::warn("passed over checkpoint {}: {}", other.path.string(), other.problem);
  resume.kept = read_summary(out);
  if (resume.kept) {
    resume.kept_steps = resume.kept->steps;
    resume.kept_evaluated = resume.kept->eval_loss.has_value();
  }
  return {{"path", std::filesystem::absolute(resume.checkpoint->path).string()},
          {"kept_steps", resume.kept_steps},
          {"kept_evaluated", resume.kept_evaluated}};
}

void check_unused_init(const TrainArguments& arguments, const Resume& resume, bool first) {
  if (arguments.init.empty() || !resume.checkpoint) return;
  checkpoint::load_weights(arguments.init);
  if (first)
    log::warn("--init {} is not used: the run resumes from {}. Start anew with --resume never.",
              arguments.init, resume.checkpoint->path.string());
}

// Keys that may change without changing what is computed.
const std::vector<std::string>& harmless() {
  static const std::vector<std::string> keys = {"out",          "checkpoint",    "data.dir",
                                                "data.workers", "data.prefetch", "train.steps",
                                                "train.epochs", "train.evaluate"};
  return keys;
}

}  // namespace

Resume find_resume(const TrainArguments& arguments, const RunConfig& config, parallel::Membership& member) {
  Resume resume;
  const std::filesystem::path out = config.out.dir;
  const bool first = member.first();
  const bool joins_running = member.job().life() > 0 && !member.job().elastic();
  if (joins_running) return resume;
  const bool lockstep = parallel::choose(config).sync().lockstep;
  std::vector<int> workers(static_cast<size_t>(lockstep ? member.workers() : 0));
  std::iota(workers.begin(), workers.end(), 0);
  const checkpoint::Team team = lockstep ? engine::team_of(member.job(), workers) : checkpoint::Team{};
  auto look = [&]() -> nlohmann::json {
    if (first) resume.lock.emplace(out);
    return first || team.size == 1 ? choose(resume, arguments, out) : nullptr;
  };
  if (team.size == 1) {
    look();
  } else {
    nlohmann::json chosen = checkpoint::Meeting(team, 0).after("resume", look)[0];
    if (!first && chosen.is_object()) {
      resume.checkpoint = checkpoint::open(chosen.at("path").get<std::string>());
      resume.kept_steps = chosen.at("kept_steps");
      resume.kept_evaluated = chosen.at("kept_evaluated");
    }
  }
  check_unused_init(arguments, resume, first);
  return resume;
}

void tell_resume(const Resume& resume, const engine::Progress& progress, int64_t total_steps,
                 const Configuration& configuration, const std::string& note) {
  log::info("resuming from {} (step {} of {}); {}", resume.checkpoint->path.string(), progress.step,
            total_steps, note);
  std::string saved = resume.checkpoint->state.rest.value("configuration", "");
  std::vector<std::string> changes = config::changed_keys(saved, configuration.schema, harmless());
  if (!changes.empty()) log::warn("changed since the checkpoint: {}", join(changes));
}

bool nothing_left(const Resume& resume, const engine::Progress& progress, int64_t total_steps,
                  bool evaluate) {
  if (!resume.checkpoint || progress.step < total_steps || resume.kept_steps < progress.step) return false;
  // A run that was stopped in its last evaluation still has to do it.
  return progress.step > total_steps || !evaluate || resume.kept_evaluated;
}

void tell_nothing_left(const Resume& resume, const engine::Progress& progress, int64_t total_steps,
                       const CommandLine& line, const RunConfig& config) {
  log::info(
      "nothing left to do: {} has done {} steps of {}. Its result is kept; more --steps or --train.epochs "
      "continue it, another --out.dir starts anew.",
      config.out.dir, progress.step, total_steps);
  print_summary(line, *resume.kept, config);
}

}  // namespace yoke::cli
