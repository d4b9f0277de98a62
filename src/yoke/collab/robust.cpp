#include "yoke/collab/robust.h"

#include <algorithm>
#include <cmath>

#include "yoke/base/error.h"
#include "yoke/base/text.h"
#include "yoke/kernels/optimizer_steps.h"

namespace yoke::collab {
namespace {

constexpr std::pair<Robust, const char*> kNames[] = {{Robust::kNone, "none"},
                                                     {Robust::kClip, "clip"},
                                                     {Robust::kCenteredClip, "centered_clip"},
                                                     {Robust::kMedian, "median"},
                                                     {Robust::kKrum, "krum"}};
constexpr int kCenteringSteps = 5;

using Contributions = std::vector<Contribution>;

template <class T>
T median_of(std::vector<T>& values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 == 1) return *middle;
  return (*middle + *std::max_element(values.begin(), middle)) / 2;
}

double squared_distance(std::span<const float> a, std::span<const float> b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double difference = static_cast<double>(a[i]) - b[i];
    sum += difference * difference;
  }
  return sum;
}

double norm(std::span<const float> a) {
  double sum = 0;
  for (float value : a) sum += static_cast<double>(value) * value;
  return std::sqrt(sum);
}

// In the order of the contributions, so that the result does not depend on timing.
void weighted_sum(const Contributions& all, const std::vector<double>& factors, std::span<float> result) {
  std::fill(result.begin(), result.end(), 0.0f);
  for (size_t j = 0; j < all.size(); ++j)
    kernels::add_scaled(result.data(), all[j].values.data(), factors[j], static_cast<int64_t>(result.size()));
}

std::vector<double> normal_weights(const Contributions& all) {
  double sum = 0;
  for (const Contribution& one : all) sum += one.weight;
  std::vector<double> weights;
  for (const Contribution& one : all) weights.push_back(one.weight / sum);
  return weights;
}

void clipped_mean(const Contributions& all, std::span<float> result) {
  std::vector<double> norms;
  for (const Contribution& one : all) norms.push_back(norm(one.values));
  std::vector<double> sorted = norms;
  const double limit = median_of(sorted);
  std::vector<double> factors = normal_weights(all);
  for (size_t j = 0; j < all.size(); ++j)
    if (norms[j] > limit) factors[j] *= limit / norms[j];
  weighted_sum(all, factors, result);
}

void coordinate_median(const Contributions& all, std::span<float> result) {
  std::vector<float> column(all.size());
  for (size_t i = 0; i < result.size(); ++i) {
    for (size_t j = 0; j < all.size(); ++j) column[j] = all[j].values[i];
    result[i] = median_of(column);
  }
}

void centered_clip(const Contributions& all, std::span<float> result) {
  coordinate_median(all, result);
  std::vector<double> weights = normal_weights(all);
  std::vector<double> distances(all.size());
  for (int step = 0; step < kCenteringSteps; ++step) {
    for (size_t j = 0; j < all.size(); ++j) distances[j] = std::sqrt(squared_distance(all[j].values, result));
    std::vector<double> sorted = distances;
    const double limit = median_of(sorted);
    std::vector<float> center(result.begin(), result.end());
    for (size_t j = 0; j < all.size(); ++j) {
      const double factor = weights[j] * (distances[j] > limit ? limit / distances[j] : 1.0);
      for (size_t i = 0; i < result.size(); ++i)
        result[i] += static_cast<float>(factor) * (all[j].values[i] - center[i]);
    }
  }
}

void krum(const Contributions& all, int suspects, std::span<float> result) {
  const size_t count = all.size();
  const auto trusted = static_cast<int>(count) - std::max(0, suspects) - 2;
  const auto neighbours = static_cast<size_t>(std::clamp(trusted, 1, static_cast<int>(count)));
  size_t best = 0;
  double best_score = 0;
  for (size_t j = 0; j < count; ++j) {
    std::vector<double> distances;
    for (size_t k = 0; k < count; ++k)
      if (k != j) distances.push_back(squared_distance(all[j].values, all[k].values));
    std::sort(distances.begin(), distances.end());
    double score = 0;
    for (size_t k = 0; k < std::min(neighbours, distances.size()); ++k) score += distances[k];
    if (j == 0 || score < best_score) {
      best = j;
      best_score = score;
    }
  }
  std::copy(all[best].values.begin(), all[best].values.end(), result.begin());
}

}  // namespace

std::vector<std::string> robust_names() {
  std::vector<std::string> names;
  for (auto& [robust, name] : kNames) names.emplace_back(name);
  return names;
}

const char* to_string(Robust robust) {
  for (auto& [value, name] : kNames)
    if (value == robust) return name;
  return "?";
}

Robust parse_robust(const std::string& text) {
  for (auto& [robust, name] : kNames)
    if (text == name) return robust;
  throw ConfigError("collab.robust = \"{}\": unknown. Accepted: {}.", text, join(robust_names()));
}

bool is_elementwise(Robust robust) {
  return robust == Robust::kNone || robust == Robust::kMedian;
}

void combine(Robust robust, const std::vector<Contribution>& contributions, int suspects,
             std::span<float> result) {
  Contributions all;
  for (const Contribution& one : contributions)
    if (one.weight > 0) all.push_back(one);
  for (const Contribution& one : all)
    YOKE_CHECK(one.values.size() == result.size(), "{} and {} elements", one.values.size(), result.size());
  if (all.empty()) {
    std::fill(result.begin(), result.end(), 0.0f);
    return;
  }
  switch (robust) {
    case Robust::kNone:
      return weighted_sum(all, normal_weights(all), result);
    case Robust::kClip:
      return clipped_mean(all, result);
    case Robust::kCenteredClip:
      return centered_clip(all, result);
    case Robust::kMedian:
      return coordinate_median(all, result);
    case Robust::kKrum:
      return krum(all, suspects, result);
  }
}

std::vector<double> distances_from(std::span<const float> result,
                                   const std::vector<Contribution>& contributions) {
  const auto elements = static_cast<double>(std::max<size_t>(1, result.size()));
  std::vector<double> distances;
  for (const Contribution& one : contributions)
    distances.push_back(std::sqrt(squared_distance(one.values, result) / elements));
  return distances;
}

double usual_size(const std::vector<Contribution>& contributions) {
  std::vector<double> sizes;
  for (const Contribution& one : contributions)
    sizes.push_back(norm(one.values) /
                    std::sqrt(static_cast<double>(std::max<size_t>(1, one.values.size()))));
  return sizes.empty() ? 0 : median_of(sizes);
}

std::vector<double> outlier_scores(const std::vector<Contribution>& contributions,
                                   std::span<const float> result) {
  std::vector<double> distances = distances_from(result, contributions);
  std::vector<double> sorted = distances;
  const double typical = sorted.empty() ? 0 : median_of(sorted);
  for (double& distance : distances) distance = typical > 0 ? distance / typical : 1;
  return distances;
}

}  // namespace yoke::collab
