#include "yoke/report/facts.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "yoke/base/units.h"
#include "yoke/report/ticks.h"

namespace yoke::report {
namespace {

using metrics::Record;
using metrics::Summary;

std::string number(double value) {
  return value_text(value, Unit::kNumber);
}
std::string percent(double value) {
  return value_text(value, Unit::kPercent);
}

std::string epochs_text(double epochs) {
  if (!(epochs > 0)) return "";
  return fmt::format("{:.4g} epoch{}", epochs, epochs == 1 ? "" : "s");
}

Fact speed_fact(double samples_per_s, std::optional<double> tokens_per_s, const char* so_far) {
  if (tokens_per_s) {
    return {std::string("Tokens per second") + so_far, number(*tokens_per_s),
            fmt::format("{} samples/s", number(samples_per_s))};
  }
  return {std::string("Samples per second") + so_far, number(samples_per_s), ""};
}

Fact memory_fact(const std::vector<int64_t>& by_rank) {
  int64_t most = *std::max_element(by_rank.begin(), by_rank.end());
  std::string detail = by_rank.size() > 1 ? fmt::format("highest of {} ranks", by_rank.size()) : "";
  return {"Peak memory", value_text(static_cast<double>(most), Unit::kBytes), detail};
}

// Of the rank that uses most: "62 MB parameters · …".
std::string use_text(const std::vector<metrics::MemoryUse>& by_rank) {
  auto held = [](const metrics::MemoryUse& use) { return use.parameters + use.gradients + use.optimizer; };
  const metrics::MemoryUse& most = *std::max_element(
      by_rank.begin(), by_rank.end(), [&](const auto& a, const auto& b) { return held(a) < held(b); });
  auto bytes = [](int64_t count) { return value_text(static_cast<double>(count), Unit::kBytes); };
  return fmt::format("gradients {} · optimizer {} · activations {} · other {}", bytes(most.gradients),
                     bytes(most.optimizer), bytes(most.activations), bytes(most.other));
}

int64_t most_parameters(const std::vector<metrics::MemoryUse>& by_rank) {
  int64_t most = 0;
  for (const metrics::MemoryUse& use : by_rank) most = std::max(most, use.parameters);
  return most;
}

std::vector<Fact> from_summary(const Summary& s) {
  std::vector<Fact> facts;
  facts.push_back({"Final loss", number(s.final_loss), s.eval_loss ? "test " + number(*s.eval_loss) : ""});
  if (s.perplexity) facts.push_back({"Perplexity", number(*s.perplexity), "on the test set"});
  if (s.accuracy)
    facts.push_back({"Accuracy", percent(*s.accuracy),
                     s.top5_accuracy ? "top 5 " + percent(*s.top5_accuracy) : "on the test set"});
  facts.push_back(speed_fact(s.samples_per_s, s.tokens_per_s, ""));
  facts.push_back({"Step time", value_text(s.step_seconds.median, Unit::kSeconds),
                   fmt::format("median · p95 {}", value_text(s.step_seconds.p95, Unit::kSeconds))});
  facts.push_back({"Steps", format_count(static_cast<double>(s.steps)), epochs_text(s.epochs)});
  facts.push_back({"Time", value_text(s.seconds, Unit::kSeconds),
                   s.resumed_from ? fmt::format("resumed at step {}", *s.resumed_from) : ""});
  facts.push_back({"Parameters", format_count(static_cast<double>(s.parameters)), ""});
  if (!s.peak_memory_bytes.empty()) facts.push_back(memory_fact(s.peak_memory_bytes));
  if (!s.memory.empty())
    facts.push_back({"Parameters held",
                     value_text(static_cast<double>(most_parameters(s.memory)), Unit::kBytes),
                     use_text(s.memory)});
  if (s.mesh && s.mesh->pipeline * s.mesh->tensor > 1)
    facts.push_back({"Mesh", fmt::format("{}x{}x{}", s.mesh->pipeline, s.mesh->data, s.mesh->tensor),
                     "pipeline x data x tensor"});
  facts.push_back(
      {s.world_size == 1 ? "Worker" : "Workers", format_count(static_cast<double>(s.world_size)),
       s.scaling_efficiency ? fmt::format("{:.3g}% scaling efficiency", *s.scaling_efficiency * 100) : ""});
  if (!s.precision.empty()) {
    facts.push_back(
        {"Precision", s.precision, s.device_name.empty() ? "on " + s.device : "on " + s.device_name});
  }
  return facts;
}

std::vector<Fact> from_records(const RunFolder& run) {
  const Record& last = run.records.back();
  std::vector<Fact> facts = {{"Loss so far", number(last.loss), ""}};
  for (auto record = run.records.rbegin(); record != run.records.rend(); ++record) {
    if (!record->accuracy) continue;
    facts.push_back({"Accuracy so far", percent(*record->accuracy), fmt::format("at step {}", record->step)});
    break;
  }
  facts.push_back(speed_fact(last.samples_per_s, last.tokens_per_s, ""));
  facts.push_back({"Steps so far", format_count(static_cast<double>(last.step)), epochs_text(last.epoch)});
  facts.push_back({"Time so far", value_text(last.time, Unit::kSeconds), ""});
  if (last.memory_bytes) facts.push_back(memory_fact({*last.memory_bytes}));
  std::string precision = config_value(run, "train", "precision");
  if (!precision.empty()) {
    std::string device = config_value(run, "train", "device");
    facts.push_back({"Precision", precision, device.empty() ? "" : "on " + device});
  }
  return facts;
}

}  // namespace

std::vector<Fact> facts_of(const RunFolder& run) {
  if (run.summary) return from_summary(*run.summary);
  if (!run.records.empty()) return from_records(run);
  return {};
}

std::string name_of(const RunFolder& run) {
  std::string model = run.summary ? run.summary->model : config_value(run, "model", "name");
  std::string data = run.summary ? run.summary->data : config_value(run, "data", "name");
  if (!model.empty()) return data.empty() ? model : model + " on " + data;
  std::filesystem::path folder = run.path.lexically_normal();
  if (!folder.has_filename()) folder = folder.parent_path();
  return folder.filename().string();
}

}  // namespace yoke::report
