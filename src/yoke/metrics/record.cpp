#include "yoke/metrics/record.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "yoke/base/error.h"
#include "yoke/metrics/json_fields.h"

namespace yoke::metrics {
namespace {

using nlohmann::json;

nlohmann::ordered_json split_to_json(const TimeSplit& split) {
  return {
      {"data", finite_or_null(split.data)},         {"forward", finite_or_null(split.forward)},
      {"backward", finite_or_null(split.backward)}, {"communication", finite_or_null(split.communication)},
      {"update", finite_or_null(split.update)},     {"other", finite_or_null(split.other)}};
}

TimeSplit split_from_json(const JsonFields& fields) {
  TimeSplit split;
  split.data = fields.optional_number("data").value_or(0);
  split.forward = fields.optional_number("forward").value_or(0);
  split.backward = fields.optional_number("backward").value_or(0);
  split.communication = fields.optional_number("communication").value_or(0);
  split.update = fields.optional_number("update").value_or(0);
  split.other = fields.optional_number("other").value_or(0);
  return split;
}

}  // namespace

nlohmann::ordered_json to_json(const Record& record) {
  nlohmann::ordered_json line = {{"step", record.step},
                                 {"epoch", finite_or_null(record.epoch)},
                                 {"time", finite_or_null(record.time)},
                                 {"loss", finite_or_null(record.loss)},
                                 {"lr", finite_or_null(record.lr)},
                                 {"samples", record.samples},
                                 {"samples_per_s", finite_or_null(record.samples_per_s)}};
  auto put = [&line](const char* key, const std::optional<double>& value) {
    if (value) line[key] = finite_or_null(*value);
  };
  put("tokens_per_s", record.tokens_per_s);
  put("grad_norm", record.grad_norm);
  put("loss_scale", record.loss_scale);
  put("noise_scale", record.noise_scale);
  put("comm_seconds", record.comm_seconds);
  put("accuracy", record.accuracy);
  put("eval_loss", record.eval_loss);
  if (record.memory_bytes) line["memory_bytes"] = *record.memory_bytes;
  if (record.split) line["split"] = split_to_json(*record.split);
  return line;
}

Record parse_record(const std::string& line) {
  const json parsed = json::parse(line, nullptr, /*allow_exceptions=*/false);
  const JsonFields fields(parsed, "metrics record");
  Record record;
  record.step = fields.count("step");
  record.epoch = fields.optional_number("epoch").value_or(0);
  record.time = fields.number("time");
  record.loss = fields.number("loss");
  record.lr = fields.number("lr");
  record.samples = fields.count("samples");
  record.samples_per_s = fields.number("samples_per_s");
  record.tokens_per_s = fields.optional_number("tokens_per_s");
  record.grad_norm = fields.optional_number("grad_norm");
  record.loss_scale = fields.optional_number("loss_scale");
  record.noise_scale = fields.optional_number("noise_scale");
  record.comm_seconds = fields.optional_number("comm_seconds");
  record.accuracy = fields.optional_number("accuracy");
  record.eval_loss = fields.optional_number("eval_loss");
  record.memory_bytes = fields.optional_count("memory_bytes");
  if (fields.has("split")) record.split = split_from_json(fields.object("split"));
  return record;
}

}  // namespace yoke::metrics
