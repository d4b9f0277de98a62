// How well a classifier knows each class of its test set.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

namespace yoke::metrics {

class JsonFields;

struct ClassResults {
  std::vector<std::string> names{};  // empty: classes are numbered
  std::vector<int64_t> samples{};    // of each class in the test set
  std::vector<int64_t> correct{};    // how many of them were recognised
  // [class][taken for]; empty for more than kMostShown classes.
  std::vector<std::vector<int64_t>> confusion{};
  struct Pair {
    int64_t actual = 0, predicted = 0, count = 0;
  };
  std::vector<Pair> confused{};  // the largest numbers off the diagonal, at most kMostShown

  static constexpr int64_t kMostShown = 30;
  std::string name_of(int64_t index) const;
};

// From counts[class * classes + taken for].
ClassResults make_class_results(const std::vector<int64_t>& counts, std::vector<std::string> names);

// Keys: names?, samples, correct, accuracy, confusion?, confused[{class, predicted, count}].
nlohmann::ordered_json to_json(const ClassResults& results);
// The inverse. Throws ConfigError naming the field.
ClassResults parse_class_results(const JsonFields& fields);

}  // namespace yoke::metrics
