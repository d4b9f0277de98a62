#include "yoke/base/sample_spec.h"

#include <fmt/core.h>

namespace yoke {

std::string to_string(const SampleSpec& spec) {
  auto at = [&](size_t i) { return i < spec.shape.size() ? spec.shape[i] : 0; };
  switch (spec.kind) {
    case SampleKind::kImage:
      return fmt::format("image {}x{}x{}, {} classes", at(0), at(1), at(2), spec.classes);
    case SampleKind::kVector:
      return fmt::format("vector of {}, {} classes", at(0), spec.classes);
    case SampleKind::kTokens:
      return fmt::format("{} tokens, vocabulary {}", at(0), spec.classes);
    case SampleKind::kSparse:
      return fmt::format("sparse vector of {} features, 2 classes", at(0));
    case SampleKind::kVideo:
      return fmt::format("{} frames of {} features, {} words, vocabulary {}", at(0), at(1), at(2),
                         spec.classes);
  }
  return "unknown";
}

}  // namespace yoke
