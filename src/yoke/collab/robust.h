// Ways to combine the vectors of peers of which some may lie. Pure functions on plain memory; a reducer
// applies them to its part of the vector.
//
//   none            the mean, weighted by samples
//   clip            every vector is shortened to the median norm first, then the weighted mean
//   centered_clip   steps towards the vectors, each limited to the median distance, starting from the
//                   coordinate-wise median (Karimireddy et al. 2021)
//   median          coordinate-wise median (ignores weights)
//   krum            the vector with the smallest distance to its nearest neighbours (Blanchard et al. 2017)
#pragma once

#include <span>
#include <string>
#include <vector>

namespace yoke::collab {

enum class Robust { kNone, kClip, kCenteredClip, kMedian, kKrum };

std::vector<std::string> robust_names();
const char* to_string(Robust robust);
// Throws ConfigError that lists the accepted names.
Robust parse_robust(const std::string& name);

// Whether elements are combined independently of each other, so that a part can be combined piecewise.
bool is_elementwise(Robust robust);

// The vector of one peer, and the number of samples it stands for.
struct Contribution {
  std::span<const float> values;
  double weight = 1;
};

// Writes the combination to `result`, which must not overlap a contribution. All vectors have its length.
// Contributions of weight 0 are ignored; without any other the result is zero.
// `suspects`: number of vectors that may be wrong, for krum.
void combine(Robust robust, const std::vector<Contribution>& contributions, int suspects,
             std::span<float> result);

// How far each vector is from `result`, divided by the median of these distances: outliers are far above 1.
std::vector<double> outlier_scores(const std::vector<Contribution>& contributions,
                                   std::span<const float> result);
// How far each is, and the median size of all: root mean squares over the elements.
std::vector<double> distances_from(std::span<const float> result,
                                   const std::vector<Contribution>& contributions);
double usual_size(const std::vector<Contribution>& contributions);

}  // namespace yoke::collab
