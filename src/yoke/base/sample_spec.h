// Shape of a sample: the contract between data sets and models.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace yoke {

enum class SampleKind {
  kImage,   // input: float [channels, height, width]; target: class
  kVector,  // input: float [features]; target: class
  kTokens,  // input: int64 [length]; target: int64 [length], the input shifted by one
  kSparse,  // input: feature indices and values (compressed rows); target: 0 or 1
  kVideo,   // input: float [frames, features] and int64 words [words]; target: int64 words [words]
};

struct SampleSpec {
  SampleKind kind = SampleKind::kImage;
  std::vector<int64_t> shape;  // kImage: C,H,W; kVector: features; kTokens: length; kSparse: features;
                               // kVideo: frames, features, words
  int64_t classes = 0;         // classes, or the vocabulary for kTokens and kVideo

  bool operator==(const SampleSpec&) const = default;
};

// "image 1x28x28, 10 classes".
std::string to_string(const SampleSpec& spec);

}  // namespace yoke
