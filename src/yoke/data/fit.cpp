#include "yoke/data/fit.h"

#include <algorithm>
#include <string>
#include <vector>

#include "yoke/base/error.h"
#include "yoke/base/text.h"

namespace yoke::data {
namespace {

std::string keys_to_change(const SampleSpec& have, const SampleSpec& wanted) {
  std::vector<std::string> keys;
  if (have.shape != wanted.shape) {
    const bool channels = wanted.kind == SampleKind::kImage && have.shape[0] != wanted.shape[0];
    keys.push_back(wanted.kind == SampleKind::kVector ? "model.sizes"
                   : channels                         ? "model.name or data.name"
                                                      : "model.image_size");
  }
  if (have.classes != wanted.classes) {
    keys.push_back(wanted.kind == SampleKind::kVector ? "the last of model.sizes" : "model.classes");
  }
  return join(keys, " and ");
}

}  // namespace

int64_t limited(int64_t size, const DataOptions& options) {
  return options.limit > 0 ? std::min(size, options.limit) : size;
}

void throw_mismatch(const DataOptions& options, const SampleSpec& have, const SampleSpec& wanted) {
  if (have.kind != wanted.kind) throw_other_kind(options, to_string(have), wanted);
  throw ConfigError("data.name = {} has {}; the model takes {}. Change {}.", options.name, to_string(have),
                    to_string(wanted), keys_to_change(have, wanted));
}

void throw_other_kind(const DataOptions& options, std::string_view have, const SampleSpec& wanted) {
  throw ConfigError("data.name = {} has {}; the model takes {}. Change model.name or data.name.",
                    options.name, have, to_string(wanted));
}

int64_t sequence_length(const DataOptions& options, const SampleSpec& wanted) {
  const int64_t longest = wanted.shape.at(0);
  if (options.seq_len > longest) {
    throw ConfigError(
        "data.seq_len = {}: the model takes at most {} tokens. Use less, or raise model.positions.",
        options.seq_len, longest);
  }
  return options.seq_len > 0 ? options.seq_len : longest;
}

void check_indices(std::span<const int64_t> indices, int64_t size) {
  for (int64_t i : indices) YOKE_CHECK(i >= 0 && i < size, "sample {} of {}", i, size);
}

}  // namespace yoke::data
