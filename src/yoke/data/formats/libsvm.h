// libsvm's text format: one sample per line, `label index:value …`, indices from 1 and ascending; # starts a
// comment.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace yoke::data {

// Compressed rows: row i has the elements offsets[i] .. offsets[i + 1] - 1.
struct SparseRows {
  std::vector<int64_t> offsets{0};
  std::vector<int32_t> indices;  // from 0, ascending within a row
  std::vector<float> values;     // finite
  std::vector<float> labels;     // 0 or 1

  int64_t rows() const { return static_cast<int64_t>(labels.size()); }
};

// Labels are 0 and 1, -1 and +1, or 1 and 2, consistently; the larger becomes 1, and so does a single 1.
// Reads at most `limit` rows (0: all). Throws ConfigError with `file`, line and offset: invalid format, no
// rows, an index above `features`.
SparseRows parse_libsvm(std::string_view text, int64_t features, const std::string& file, int64_t limit = 0);

}  // namespace yoke::data
