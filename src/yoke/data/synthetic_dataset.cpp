#include "yoke/data/synthetic_dataset.h"

#include <algorithm>
#include <cmath>

#include "yoke/base/error.h"
#include "yoke/base/random.h"
#include "yoke/data/fit.h"
#include "yoke/data/pattern_bank.h"

namespace yoke::data {
namespace {

constexpr uint64_t kPurpose = 0x73796e7468;  // "synth"

// Common to all kinds: the number of samples, and a generator for each of them.
class SyntheticDataset : public Dataset {
 public:
  SyntheticDataset(int64_t size, Split split, SampleSpec spec, uint64_t seed)
      : spec_(std::move(spec)),
        size_(size),
        sample_seed_(derive_seed(seed, split == Split::kTrain ? 1 : 2)) {}
  int64_t size() const override { return size_; }
  SampleSpec spec() const override { return spec_; }

 protected:
  Random random_for(int64_t index) const {
    return Random(derive_seed(sample_seed_, static_cast<uint64_t>(index)));
  }

  SampleSpec spec_;

 private:
  int64_t size_;
  uint64_t sample_seed_;
};

int64_t draw_below(Random& random, int64_t bound) {
  return static_cast<int64_t>(random.below(static_cast<uint64_t>(bound)));
}

// Draws after the sample: without noise samples are the same as ever.
int64_t with_noise(int64_t label, int64_t classes, double noise, Random& random) {
  return noise > 0 && random.uniform() < noise ? draw_below(random, classes) : label;
}

PatternBank::Size picture_size(const SampleSpec& spec) {
  if (spec.kind == SampleKind::kVector) return {1, 1, spec.shape[0], 1, spec.shape[0]};
  constexpr int64_t kCells = 8;  // coarse, so that pooling preserves it
  const int64_t height = spec.shape[1], width = spec.shape[2];
  return {spec.shape[0], height, width, std::min(height, kCells), std::min(width, kCells)};
}

class PictureDataset : public SyntheticDataset {
 public:
  PictureDataset(int64_t size, Split split, SampleSpec spec, uint64_t seed, double noise)
      : SyntheticDataset(size, split, spec, seed),
        noise_(noise),
        bank_(spec.classes, picture_size(spec), derive_seed(seed, 3)) {}

  Batch gather(std::span<const int64_t> indices) const override {
    check_indices(indices, size());
    const auto count = static_cast<int64_t>(indices.size());
    std::vector<int64_t> shape{count};
    shape.insert(shape.end(), spec_.shape.begin(), spec_.shape.end());
    Batch batch{{torch::empty(shape, torch::kFloat32)}, torch::empty({count}, torch::kInt64), count};
    auto* out = batch.inputs[0].data_ptr<float>();
    auto* target = batch.target.data_ptr<int64_t>();
    const int64_t step = count > 0 ? batch.inputs[0].numel() / count : 0;
    for (int64_t index : indices) {
      Random random = random_for(index);
      const int64_t label = draw_below(random, spec_.classes);
      bank_.draw(label, random, out);
      *target++ = with_noise(label, spec_.classes, noise_, random);
      out += step;
    }
    return batch;
  }

 private:
  double noise_;
  PatternBank bank_;
};

class SyntheticTokens : public SyntheticDataset {
 public:
  SyntheticTokens(int64_t size, Split split, SampleSpec spec, uint64_t seed)
      : SyntheticDataset(size, split, spec, seed),
        used_(std::min<int64_t>(spec.classes, 256)),
        spread_(spec.classes / used_),
        successor_(random_permutation(used_, derive_seed(seed, 3))) {}

  Batch gather(std::span<const int64_t> indices) const override {
    check_indices(indices, size());
    const auto count = static_cast<int64_t>(indices.size());
    const int64_t length = spec_.shape[0];
    Batch batch{
        {torch::empty({count, length}, torch::kInt64)}, torch::empty({count, length}, torch::kInt64), count};
    auto* input = batch.inputs[0].data_ptr<int64_t>();
    auto* target = batch.target.data_ptr<int64_t>();
    for (int64_t index : indices) {
      Random random = random_for(index);
      int64_t state = draw_below(random, used_);
      for (int64_t t = 0; t < length; ++t) {
        *input++ = state * spread_;
        const bool jump = draw_below(random, 10) == 0;
        state = jump ? draw_below(random, used_) : successor_[static_cast<size_t>(state)];
        *target++ = state * spread_;
      }
    }
    return batch;
  }

 private:
  int64_t used_;    // few enough that small models learn them soon
  int64_t spread_;  // ids are multiples of this, over the whole vocabulary
  std::vector<int64_t> successor_;
};

class SyntheticSparse : public SyntheticDataset {
 public:
  SyntheticSparse(int64_t size, Split split, SampleSpec spec, uint64_t seed, double noise)
      : SyntheticDataset(size, split, spec, seed),
        noise_(noise),
        elements_(std::min<int64_t>(spec.shape[0], 16)),
        weight_seed_(derive_seed(seed, 3)) {}

  Batch gather(std::span<const int64_t> indices) const override {
    check_indices(indices, size());
    const auto count = static_cast<int64_t>(indices.size());
    Batch batch{{torch::empty({count * elements_}, torch::kInt64),
                 torch::empty({count * elements_}, torch::kFloat32), torch::empty({count}, torch::kInt64)},
                torch::empty({count}, torch::kFloat32),
                count};
    auto* feature = batch.inputs[0].data_ptr<int64_t>();
    auto* value = batch.inputs[1].data_ptr<float>();
    auto* offset = batch.inputs[2].data_ptr<int64_t>();
    auto* target = batch.target.data_ptr<float>();
    for (int64_t i = 0; i < count; ++i) {
      Random random = random_for(indices[static_cast<size_t>(i)]);
      offset[i] = i * elements_;
      double score = 0;
      for (int64_t e = 0; e < elements_; ++e) {
        *feature = draw_feature(e, random);
        *value = static_cast<float>(0.5 + random.uniform());
        score += weight(*feature++) * *value++;
      }
      target[i] = static_cast<float>(with_noise(score > 0 ? 1 : 0, 2, noise_, random));
    }
    return batch;
  }

 private:
  // One feature from each of equally many ranges: distinct and ascending. The cube makes a few of them
  // frequent.
  int64_t draw_feature(int64_t range, Random& random) const {
    const int64_t begin = part(range), end = part(range + 1);
    const auto offset =
        static_cast<int64_t>(static_cast<double>(end - begin) * std::pow(random.uniform(), 3));
    return std::min(begin + offset, end - 1);
  }
  int64_t part(int64_t range) const {
    return spec_.shape[0] / elements_ * range + spec_.shape[0] % elements_ * range / elements_;
  }
  // Computed, not stored: there may be a billion features.
  double weight(int64_t feature) const {
    return Random(derive_seed(weight_seed_, static_cast<uint64_t>(feature))).uniform() - 0.5;
  }

  double noise_;
  int64_t elements_;
  uint64_t weight_seed_;
};

class SyntheticVideo : public SyntheticDataset {
 public:
  SyntheticVideo(int64_t size, Split split, SampleSpec spec, uint64_t seed)
      : SyntheticDataset(size, split, spec, seed),
        bank_(kScenes, {1, spec.shape[0], spec.shape[1], 1, spec.shape[1]}, derive_seed(seed, 3)) {
    Random random(derive_seed(seed, 4));
    for (int64_t i = 0; i < kScenes * spec_.shape[2]; ++i)
      words_.push_back(1 + draw_below(random, spec.classes - 1));
  }

  Batch gather(std::span<const int64_t> indices) const override {
    check_indices(indices, size());
    const auto count = static_cast<int64_t>(indices.size());
    const int64_t frames = spec_.shape[0], features = spec_.shape[1], words = spec_.shape[2];
    Batch batch{{torch::empty({count, frames, features}, torch::kFloat32),
                 torch::empty({count, words}, torch::kInt64)},
                torch::empty({count, words}, torch::kInt64),
                count};
    auto* out = batch.inputs[0].data_ptr<float>();
    auto* input = batch.inputs[1].data_ptr<int64_t>();
    auto* target = batch.target.data_ptr<int64_t>();
    for (int64_t index : indices) {
      Random random = random_for(index);
      const int64_t scene = draw_below(random, kScenes);
      bank_.draw(scene, random, out);
      out += frames * features;
      for (int64_t w = 0; w < words; ++w) {
        *input++ = w == 0 ? 0 : target[-1];
        *target++ = words_[static_cast<size_t>(scene * words + w)];
      }
    }
    return batch;
  }

 private:
  static constexpr int64_t kScenes = 10;
  PatternBank bank_;
  std::vector<int64_t> words_;  // [kScenes, words]
};

void check_shape(const SampleSpec& spec) {
  const size_t dims = spec.kind == SampleKind::kImage || spec.kind == SampleKind::kVideo ? 3 : 1;
  YOKE_CHECK(spec.shape.size() == dims, "{} sizes for {}", spec.shape.size(), to_string(spec));
  for (int64_t size : spec.shape) YOKE_CHECK(size >= 1, "an empty sample: {}", to_string(spec));
  const int64_t least = spec.kind == SampleKind::kVideo ? 2 : 1;
  YOKE_CHECK(spec.kind == SampleKind::kSparse || spec.classes >= least, "too few classes: {}",
             to_string(spec));
}

}  // namespace

std::unique_ptr<Dataset> open_synthetic(const DataOptions& options, Split split, const SampleSpec& wanted,
                                        uint64_t seed) {
  check_shape(wanted);
  const int64_t all = split == Split::kTrain ? options.samples : std::max<int64_t>(1, options.samples / 8);
  const int64_t size = limited(all, options);
  SampleSpec spec = wanted;
  seed = derive_seed(seed, kPurpose);
  const double noise = split == Split::kTrain ? options.noise : 0;
  switch (wanted.kind) {
    case SampleKind::kImage:
    case SampleKind::kVector:
      return std::make_unique<PictureDataset>(size, split, spec, seed, noise);
    case SampleKind::kTokens:
      spec.shape = {sequence_length(options, wanted)};
      return std::make_unique<SyntheticTokens>(size, split, spec, seed);
    case SampleKind::kSparse:
      return std::make_unique<SyntheticSparse>(size, split, spec, seed, noise);
    case SampleKind::kVideo:
      return std::make_unique<SyntheticVideo>(size, split, spec, seed);
  }
  YOKE_CHECK(false, "no such kind of sample");
  return nullptr;
}

}  // namespace yoke::data
