#include "cli/verify_layouts.h"

#include "cli/idle_keys.h"
#include "yoke/base/error.h"
#include "yoke/base/text.h"
#include "yoke/parallel/average_checks.h"
#include "yoke/parallel/fit.h"
#include "yoke/plan/partition/partition_file.h"
#include "yoke/plan/schedules/orders.h"
#include "yoke/plan/schedules/schedule.h"

namespace yoke::cli {
namespace {

constexpr struct {
  const char* word;
  const char* key;
} kWords[] = {
    {"data", "parallel.data"},
    {"accumulate", "train.accumulate"},
    {"zero", "parallel.zero"},
    {"split", "parallel.split"},
    {"sync", "parallel.sync"},
    {"servers", "ps.servers"},
    {"spares", "hybrid.servers"},
    {"policy", "ps.policy"},
    {"k", "ps.k"},
    {"max_delay", "ps.max_delay"},
    {"pipeline", "parallel.pipeline"},
    {"schedule", "pipeline.schedule"},
    {"microbatches", "pipeline.microbatches"},
    {"chunks", "pipeline.chunks"},
    {"vertical_sync", "pipeline.vertical_sync"},
    {"tensor", "parallel.tensor"},
    {"sequence", "parallel.sequence"},
    {"offload", "parallel.offload"},
    {"method", "average.method"},
    {"every", "average.every"},
    {"outer_lr", "average.outer_lr"},
    {"graph", "average.graph"},
    {"outer_momentum", "average.outer_momentum"},
    {"partition", "parallel.partition"},
};

config::Override override_of(const Layout& layout, const std::string& word) {
  size_t equals = word.find('=');
  std::string name = trim(word.substr(0, equals));
  for (const auto& known : kWords)
    if (equals != std::string::npos && name == known.word)
      return {known.key, trim(word.substr(equals + 1)), "--layouts"};
  std::vector<std::string> words;
  for (const auto& known : kWords) words.emplace_back(known.word);
  throw ConfigError(
      "layout '{}': '{}' is invalid. A layout is a list of WORD=VALUE separated by commas; words: {}.",
      layout.text, word, join(words, " "));
}

void add_word(Layout& layout, const std::string& word) {
  config::Override change = override_of(layout, word);
  for (const config::Override& other : layout.overrides)
    if (other.key == change.key) throw ConfigError("layout '{}': '{}' is given twice.", layout.text, word);
  try {
    Configuration().schema.set(change);
    if (change.key == "parallel.data" && change.value == "0")
      throw ConfigError("parallel.data = 0: expected an integer of at least 1.");
  } catch (const ConfigError& error) {
    throw ConfigError("layout '{}': '{}' is invalid: {}", layout.text, word, error.what());
  }
  layout.overrides.push_back(std::move(change));
}

// Layouts that `train` supports but that have no known reference.
void check_comparable(const RunConfig& config) {
  if (!config.parallel.plan.empty())
    throw ConfigError("parallel.plan: a layout sets its own stages, as in pipeline=2.");
  if (config.parallel.split == "speed")
    throw ConfigError("split=speed changes with the machine. Give shares, as in split=8:4.");
  if (config.parallel.split != "equal" && config.train.loop.accumulate > 1)
    throw ConfigError(
        "split cannot be combined with accumulate: the micro-batches of a replica are equal here.");
  if (config.train.compute.precision != "fp32")
    throw ConfigError("train.precision = \"{}\": verify computes in --dtype. Set train.precision = \"fp32\".",
                      config.train.compute.precision);
  bool flushes = plan::flushes(plan::parse_schedule_kind(config.pipeline.schedule));
  if (config.parallel.pipeline > 1 && config.parallel.partition.empty() && !flushes &&
      (config.parallel.data > 1 || config.train.loop.accumulate > 1))
    throw ConfigError("{} is verified with data=1 and accumulate=1.", config.pipeline.schedule);
}

void check_batch(const RunConfig& config, int64_t copies) {
  int64_t parts = copies * config.train.loop.accumulate;
  if (config.data.batch_size % parts != 0)
    throw ConfigError("a batch of {} cannot be divided into {} equal parts. Set data.batch_size.",
                      config.data.batch_size, parts);
}

// `partition=auto` alone is two parts.
int64_t parts_of_layout(const RunConfig& config, int64_t copies) {
  if (config.parallel.partition != "auto") return plan::read_partition(config.parallel.partition).parts;
  const int64_t parts = std::max<int64_t>(2, config.parallel.pipeline);
  return parallel::parts_of(config, static_cast<int>(std::min<int64_t>(parts * copies, 1 << 20)));
}

std::unique_ptr<LayoutConfiguration> configured(const CommandLine& line, const Layout& layout) {
  auto one = std::make_unique<LayoutConfiguration>();
  one->text = layout.text;
  std::vector<config::Override> overrides = line.overrides;
  overrides.insert(overrides.end(), layout.overrides.begin(), layout.overrides.end());
  one->configuration.load(line.verify.file, overrides);
  RunConfig& config = one->configuration.values;
  one->copies = std::max<int64_t>(1, config.parallel.data);
  if (!config.parallel.partition.empty()) config.parallel.pipeline = parts_of_layout(config, one->copies);
  const int64_t ranks = one->copies * config.parallel.pipeline * config.parallel.tensor;
  if (ranks > 1024) throw ConfigError("{} ranks: at most 1024 threads are started.", ranks);
  one->ranks = static_cast<int>(ranks);
  check_comparable(config);
  if (std::string why = parallel::not_one_device(config, config.train.optimizer, one->copies); !why.empty())
    throw ConfigError(
        "parallel.sync = \"average\" does not equal one device here, so there is nothing to verify: {}.",
        why);
  parallel::check_average_replicas(config, one->copies);
  refuse_idle_keys(one->configuration, one->ranks, /*tell=*/false);
  parallel::workers_of(config, parallel::ranks_of(config, one->ranks));
  check_batch(config, one->copies);
  if (parallel::in_one_process(config)) one->ranks = 1;
  return one;
}

}  // namespace

std::vector<Layout> parse_layouts(const std::string& text) {
  std::vector<Layout> layouts;
  for (const std::string& part : split(text, ';')) {
    Layout layout;
    layout.text = trim(part);
    if (layout.text.empty()) continue;
    for (const std::string& word : split(layout.text, ',')) add_word(layout, trim(word));
    layouts.push_back(layout);
  }
  if (layouts.empty()) throw ConfigError("--layouts '{}': no layout. Example: \"data=2\".", text);
  return layouts;
}

std::vector<std::unique_ptr<LayoutConfiguration>> layout_configurations(const CommandLine& line) {
  std::vector<std::unique_ptr<LayoutConfiguration>> all;
  for (const Layout& layout : parse_layouts(line.verify.layouts)) {
    try {
      all.push_back(configured(line, layout));
    } catch (const ConfigError& error) {
      throw ConfigError("layout '{}': {}", layout.text, error.what());
    }
  }
  return all;
}

}  // namespace yoke::cli
