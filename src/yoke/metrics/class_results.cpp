#include "yoke/metrics/class_results.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "yoke/base/error.h"
#include "yoke/metrics/json_fields.h"

namespace yoke::metrics {
namespace {

std::vector<int64_t> counts_in(const nlohmann::json& array, size_t expected) {
  std::vector<int64_t> values;
  for (const nlohmann::json& element : array) {
    std::optional<int64_t> value = as_count(element);
    if (!value) throw ConfigError("classes: expected integers of at least 0, found {}.", element.dump());
    values.push_back(*value);
  }
  if (values.size() != expected)
    throw ConfigError("classes: expected {} numbers, found {}.", expected, values.size());
  return values;
}

int64_t class_in(const JsonFields& fields, const char* key, size_t classes) {
  const int64_t index = fields.count(key);
  if (index >= static_cast<int64_t>(classes))
    throw ConfigError("classes: \"{}\" = {}: there are {} classes.", key, index, classes);
  return index;
}

}  // namespace

std::string ClassResults::name_of(int64_t index) const {
  return names.empty() ? std::to_string(index) : names[static_cast<size_t>(index)];
}

ClassResults make_class_results(const std::vector<int64_t>& counts, std::vector<std::string> names) {
  size_t classes = 0;
  while (classes * classes < counts.size()) ++classes;
  YOKE_CHECK(classes * classes == counts.size(), "{} counts are no square", counts.size());
  ClassResults results;
  if (names.size() == classes) results.names = std::move(names);
  for (size_t actual = 0; actual < classes; ++actual) {
    const int64_t* row = counts.data() + actual * classes;
    int64_t samples = 0;
    for (size_t predicted = 0; predicted < classes; ++predicted) {
      samples += row[predicted];
      if (predicted != actual && row[predicted] > 0)
        results.confused.push_back(
            {static_cast<int64_t>(actual), static_cast<int64_t>(predicted), row[predicted]});
    }
    results.samples.push_back(samples);
    results.correct.push_back(row[actual]);
    if (classes <= ClassResults::kMostShown) results.confusion.emplace_back(row, row + classes);
  }
  std::stable_sort(results.confused.begin(), results.confused.end(),
                   [](const auto& a, const auto& b) { return a.count > b.count; });
  if (results.confused.size() > ClassResults::kMostShown) results.confused.resize(ClassResults::kMostShown);
  return results;
}

nlohmann::ordered_json to_json(const ClassResults& results) {
  nlohmann::ordered_json json, accuracy = nlohmann::ordered_json::array(),
                               confused = nlohmann::ordered_json::array();
  for (size_t i = 0; i < results.samples.size(); ++i) {
    const auto samples = static_cast<double>(results.samples[i]);
    accuracy.push_back(samples > 0 ? nlohmann::ordered_json(static_cast<double>(results.correct[i]) / samples)
                                   : nlohmann::ordered_json());
  }
  for (const ClassResults::Pair& pair : results.confused)
    confused.push_back({{"class", pair.actual}, {"predicted", pair.predicted}, {"count", pair.count}});
  if (!results.names.empty()) json["names"] = results.names;
  json["samples"] = results.samples;
  json["correct"] = results.correct;
  json["accuracy"] = accuracy;
  if (!results.confusion.empty()) json["confusion"] = results.confusion;
  json["confused"] = confused;
  return json;
}

ClassResults parse_class_results(const JsonFields& fields) {
  ClassResults results;
  const size_t classes = fields.array("samples").size();
  results.samples = counts_in(fields.array("samples"), classes);
  results.correct = counts_in(fields.array("correct"), classes);
  if (fields.has("names"))
    for (const nlohmann::json& name : fields.array("names")) {
      if (!name.is_string()) throw ConfigError("classes: \"names\" must hold texts.");
      results.names.push_back(name.get<std::string>());
    }
  if (!results.names.empty() && results.names.size() != classes)
    throw ConfigError("classes: {} names for {} classes.", results.names.size(), classes);
  if (fields.has("confusion")) {
    const nlohmann::json& rows = fields.array("confusion");
    if (rows.size() != classes)
      throw ConfigError("classes: \"confusion\" has {} rows for {} classes.", rows.size(), classes);
    for (const nlohmann::json& row : rows) results.confusion.push_back(counts_in(row, classes));
  }
  for (const nlohmann::json& one : fields.array("confused")) {
    const JsonFields pair(one, "classes: confused");
    results.confused.push_back(
        {class_in(pair, "class", classes), class_in(pair, "predicted", classes), pair.count("count")});
  }
  return results;
}

}  // namespace yoke::metrics
