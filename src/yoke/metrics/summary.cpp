#include "yoke/metrics/summary.h"

#include <array>
#include <ctime>
#include <nlohmann/json.hpp>

#include "yoke/base/error.h"
#include "yoke/metrics/json_fields.h"

namespace yoke::metrics {
namespace {

class Writer {
 public:
  template <class T>
  void put(const char* key, const T& value) {
    json_[key] = value;
  }
  void put(const char* key, double value) { json_[key] = finite_or_null(value); }
  void put(const char* key, const std::string& value) {
    if (!value.empty()) json_[key] = value;
  }
  template <class T>
  void put(const char* key, const std::optional<T>& value) {
    if (value) put(key, *value);
  }
  nlohmann::ordered_json take() { return std::move(json_); }

 private:
  nlohmann::ordered_json json_ = nlohmann::ordered_json::object();
};

std::vector<int64_t> counts(const nlohmann::json& array, const char* key) {
  std::vector<int64_t> values;
  for (const nlohmann::json& element : array) {
    std::optional<int64_t> value = as_count(element);
    if (!value) throw ConfigError("summary: \"{}\" must hold integers of at least 0.", key);
    values.push_back(*value);
  }
  return values;
}

constexpr std::pair<const char*, int64_t MeshSize::*> kMesh[] = {
    {"pipeline", &MeshSize::pipeline}, {"data", &MeshSize::data}, {"tensor", &MeshSize::tensor}};
constexpr std::pair<const char*, int64_t MemoryUse::*> kMemory[] = {{"parameters", &MemoryUse::parameters},
                                                                    {"gradients", &MemoryUse::gradients},
                                                                    {"optimizer", &MemoryUse::optimizer},
                                                                    {"activations", &MemoryUse::activations},
                                                                    {"other", &MemoryUse::other}};
constexpr std::pair<const char*, std::vector<int64_t> AxisBytes::*> kCommunication[] = {
    {"data", &AxisBytes::data}, {"tensor", &AxisBytes::tensor}, {"pipeline", &AxisBytes::pipeline}};

template <class Table, class Value>
nlohmann::ordered_json object_of(const Table& table, const Value& value) {
  nlohmann::ordered_json object;
  for (auto& [key, member] : table) object[key] = value.*member;
  return object;
}

void put_axes(Writer& out, const Summary& summary) {
  if (summary.mesh) out.put("mesh", object_of(kMesh, *summary.mesh));
  nlohmann::ordered_json memory = nlohmann::ordered_json::array();
  for (const MemoryUse& rank : summary.memory) memory.push_back(object_of(kMemory, rank));
  if (!memory.empty()) out.put("memory", memory);
  if (summary.communication) out.put("communication", object_of(kCommunication, *summary.communication));
}

void read_axes(const JsonFields& fields, Summary& summary) {
  if (fields.has("mesh")) {
    summary.mesh.emplace();
    for (auto& [key, member] : kMesh) (*summary.mesh).*member = fields.object("mesh").count(key);
  }
  if (fields.has("memory"))
    for (const nlohmann::json& rank : fields.array("memory")) {
      const JsonFields use(rank, "summary: memory");
      summary.memory.emplace_back();
      for (auto& [key, member] : kMemory) summary.memory.back().*member = use.count(key);
    }
  if (fields.has("communication")) {
    summary.communication.emplace();
    for (auto& [key, member] : kCommunication)
      (*summary.communication).*member = counts(fields.object("communication").array(key), key);
  }
}

}  // namespace

namespace {

nlohmann::ordered_json to_json(const ElasticSummary& elastic) {
  nlohmann::ordered_json changes = nlohmann::ordered_json::array();
  for (const ElasticSummary::Change& one : elastic.changes)
    changes.push_back({{"epoch", one.epoch},
                       {"step", one.step},
                       {"ranks", one.ranks},
                       {"pause", one.pause},
                       {"at", one.at},
                       {"cause", one.cause}});
  return {{"epochs", elastic.epochs},
          {"losses", elastic.losses},
          {"joins", elastic.joins},
          {"repeated", elastic.repeated},
          {"copied_bytes", elastic.copied_bytes},
          {"copy_memory", elastic.copy_memory},
          {"rebuilt_bytes", elastic.rebuilt_bytes},
          {"changes", changes}};
}

}  // namespace

namespace {

void put_compute(Writer& out, const Summary& summary) {
  out.put("train_flops", summary.train_flops);
  if (summary.train_flops) out.put("train_pflop_days", pflop_days(*summary.train_flops));
  if (!summary.whole_training) return;
  const WholeTraining& whole = *summary.whole_training;
  Writer inner;
  inner.put("epochs", whole.epochs);
  inner.put("seconds", whole.seconds);
  inner.put("flops", whole.flops);
  if (whole.flops) inner.put("pflop_days", pflop_days(*whole.flops));
  out.put("whole_training", inner.take());
}

void read_compute(const JsonFields& fields, Summary& summary) {
  summary.train_flops = fields.optional_number("train_flops");
  if (!fields.has("whole_training")) return;
  const JsonFields whole = fields.object("whole_training");
  summary.whole_training = {whole.number("epochs"), whole.number("seconds"), whole.optional_number("flops")};
}

}  // namespace

nlohmann::ordered_json to_json(const Summary& summary) {
  Writer out;
  out.put("model", summary.model);
  out.put("data", summary.data);
  out.put("optimizer", summary.optimizer);
  out.put("precision", summary.precision);
  out.put("device", summary.device);
  out.put("device_name", summary.device_name);
  out.put("steps", summary.steps);
  out.put("epochs", summary.epochs);
  out.put("world_size", summary.world_size);
  out.put("final_loss", summary.final_loss);
  out.put("accuracy", summary.accuracy);
  out.put("eval_loss", summary.eval_loss);
  out.put("perplexity", summary.perplexity);
  out.put("top5_accuracy", summary.top5_accuracy);
  out.put("samples_per_s", summary.samples_per_s);
  out.put("tokens_per_s", summary.tokens_per_s);
  out.put("step_seconds", nlohmann::ordered_json{{"median", finite_or_null(summary.step_seconds.median)},
                                                 {"p95", finite_or_null(summary.step_seconds.p95)}});
  put_compute(out, summary);
  out.put("parameters", summary.parameters);
  out.put("parameter_hash", summary.parameter_hash);
  out.put("seconds", summary.seconds);
  out.put("peak_memory_bytes", summary.peak_memory_bytes);
  put_axes(out, summary);
  out.put("scaling_efficiency", summary.scaling_efficiency);
  out.put("one_device_samples_per_s", summary.one_device_samples_per_s);
  out.put("resumed_from", summary.resumed_from);
  if (summary.classes) out.put("classes", to_json(*summary.classes));
  if (summary.elastic) out.put("elastic", to_json(*summary.elastic));
  out.put("started", summary.started);
  out.put("command", summary.command);
  return out.take();
}

Summary parse_summary(const std::string& text) {
  const nlohmann::json parsed = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  const JsonFields fields(parsed, "summary");
  Summary summary;
  summary.model = fields.optional_text("model");
  summary.data = fields.optional_text("data");
  summary.optimizer = fields.optional_text("optimizer");
  summary.precision = fields.optional_text("precision");
  summary.device = fields.optional_text("device");
  summary.device_name = fields.optional_text("device_name");
  summary.steps = fields.count("steps");
  summary.epochs = fields.number("epochs");
  summary.world_size = fields.count("world_size");
  summary.final_loss = fields.number("final_loss");
  summary.accuracy = fields.optional_number("accuracy");
  summary.eval_loss = fields.optional_number("eval_loss");
  summary.perplexity = fields.optional_number("perplexity");
  summary.top5_accuracy = fields.optional_number("top5_accuracy");
  if (fields.has("classes")) summary.classes = parse_class_results(fields.object("classes"));
  summary.samples_per_s = fields.number("samples_per_s");
  summary.tokens_per_s = fields.optional_number("tokens_per_s");
  const JsonFields step_seconds = fields.object("step_seconds");
  summary.step_seconds = {step_seconds.number("median"), step_seconds.number("p95")};
  read_compute(fields, summary);
  summary.parameters = fields.count("parameters");
  summary.parameter_hash = fields.optional_text("parameter_hash");
  summary.seconds = fields.number("seconds");
  summary.peak_memory_bytes = counts(fields.array("peak_memory_bytes"), "peak_memory_bytes");
  read_axes(fields, summary);
  summary.scaling_efficiency = fields.optional_number("scaling_efficiency");
  summary.one_device_samples_per_s = fields.optional_number("one_device_samples_per_s");
  summary.resumed_from = fields.optional_count("resumed_from");
  summary.started = fields.optional_text("started");
  summary.command = fields.optional_text("command");
  return summary;
}

std::string utc_time(double wall_seconds) {
  auto seconds = static_cast<std::time_t>(wall_seconds);
  std::tm parts{};
  if (::gmtime_r(&seconds, &parts) == nullptr) return "";
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text.data();
}

}  // namespace yoke::metrics
