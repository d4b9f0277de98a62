#include "cli/lab_stragglers.h"

#include <fmt/core.h>

#include <algorithm>

#include "cli/lab_stragglers_trained.h"
#include "cli/lab_stragglers_virtual.h"
#include "cli/lab_train.h"
#include "yoke/base/error.h"
#include "yoke/plan/policies/delay_law.h"
#include "yoke/plan/policies/rule.h"

namespace yoke::cli {
namespace {

constexpr int64_t kMostLabWorkers = 256;
constexpr int64_t kVirtualWorkers = 8;
constexpr const char* kVirtualDelay = "exp:10ms";  // without delays there is nothing to compare

// Many random labels and a high learning rate: every rule ends on a floor that its noise sets. No sample is
// drawn twice, so that the training loss is that of new samples.
constexpr const char* kNoisyRecipe = R"([model]
name = "mlp"
sizes = [32, 64, 100]

[data]
name = "synthetic"
samples = 200000
noise = 0.3
batch_size = 16

[train]
steps = {}
optimizer = "sgd"
lr = 0.3
momentum = 0.0
threads = 1
evaluate = false
)";
constexpr int kTrainedSteps = 1500, kQuickTrainedSteps = 20;
constexpr const char* kTrainedDelay = "exp:5ms";

void take_own_recipe(const Lab& lab, LabArguments& arguments) {
  if (!arguments.file.empty())
    throw ConfigError("--trained: it takes the recipe of the lab, not {}. Remove one of them.",
                      arguments.file);
  arguments.file =
      recipe_of(lab, "", fmt::format(kNoisyRecipe, lab.quick ? kQuickTrainedSteps : kTrainedSteps));
  if (!lab.was_given("--delay")) arguments.delay = kTrainedDelay;
}

}  // namespace

void run_lab_stragglers(Lab& lab) {
  LabArguments arguments = lab.line.lab;
  if (arguments.trained) take_own_recipe(lab, arguments);
  const bool trains = !arguments.file.empty();
  if (!trains && !lab.was_given("--workers")) arguments.workers = lab.quick ? 4 : kVirtualWorkers;
  if (trains) lab.quick_default("--workers", arguments.workers, int64_t{2});
  if (arguments.workers < 1 || arguments.workers > kMostLabWorkers)
    throw ConfigError("--workers {}: expected an integer from 1 to {}.", arguments.workers, kMostLabWorkers);
  plan::parse_delay_law(arguments.delay);
  if (!trains && !lab.line.overrides.empty())
    throw ConfigError("{}: without FILE and --trained nothing is trained. Add one, or remove it.",
                      lab.line.overrides.front().origin);
  VirtualRules virtual_rules{.rules = chosen_rules(arguments.policies),
                             .workers = static_cast<int>(arguments.workers)};
  virtual_rules.k = arguments.k > 0 ? std::min(arguments.k, arguments.workers)
                                    : std::max<int64_t>(1, arguments.workers / 2);
  virtual_rules.max_delay = plan::parse_max_delay("--max-delay", arguments.max_delay);
  virtual_rules.delay = arguments.delay == "none" ? kVirtualDelay : arguments.delay;
  virtual_rules.delay_workers = arguments.delay_workers;
  lab.page.title = "Stragglers";
  const size_t trained = virtual_rules.rules.size() * (arguments.fault_free ? 2 : 1);
  lab.expect(virtual_parts(virtual_rules) + (trains ? trained : 0));
  if (trains) train_under_rules(lab, arguments);
  nlohmann::json rows = compare_virtual_rules(lab, virtual_rules);
  lab.document["virtual"] = {
      {"results", rows}, {"workers", arguments.workers}, {"delay", virtual_rules.delay}};
  if (!trains) lab.document["results"] = std::move(rows);
}

}  // namespace yoke::cli
