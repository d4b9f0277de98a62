#include "yoke/data/shapes_only.h"

#include <gtest/gtest.h>

#include "yoke/base/error.h"
#include "yoke/data/loader.h"

namespace yoke::data {
namespace {

const SampleSpec kVideoSpec{SampleKind::kVideo, {3, 5, 4}, 9};

// Counts how often it is asked for samples.
class Counting : public Dataset {
 public:
  explicit Counting(std::unique_ptr<Dataset> inner) : inner_(std::move(inner)) {}
  int64_t size() const override { return inner_->size(); }
  SampleSpec spec() const override { return inner_->spec(); }
  Batch gather(std::span<const int64_t> indices) const override {
    asked += static_cast<int64_t>(indices.size());
    return inner_->gather(indices);
  }
  mutable int64_t asked = 0;

 private:
  std::unique_ptr<Dataset> inner_;
};

DataOptions eleven_samples() {
  DataOptions options;
  options.name = "synthetic";
  options.samples = 11;
  options.batch_size = 4;
  options.drop_last = false;
  return options;
}

TEST(ShapesOnly, ALoaderGoesTheSameWayWithoutReadingSamples) {
  DataOptions options = eleven_samples();
  Counting all(open(options, Split::kTrain, kVideoSpec, 1));
  auto shapes = shapes_only(all);
  EXPECT_EQ(all.asked, 1);
  EXPECT_EQ(shapes->size(), 11);
  EXPECT_EQ(shapes->spec(), kVideoSpec);
  Loader with(all, options, 1), without(*shapes, options, 1);
  for (int i = 0; i < 7; ++i) {
    Batch expected = with.next(), batch = without.next();
    EXPECT_EQ(batch.samples, expected.samples);
    EXPECT_EQ(batch.global_samples, expected.global_samples);
    EXPECT_EQ(batch.weight, expected.weight);
    ASSERT_EQ(batch.inputs.size(), expected.inputs.size());
    for (size_t k = 0; k < batch.inputs.size(); ++k) {
      EXPECT_EQ(batch.inputs[k].sizes(), expected.inputs[k].sizes());
      EXPECT_EQ(batch.inputs[k].scalar_type(), expected.inputs[k].scalar_type());
    }
    EXPECT_EQ(batch.target.sizes(), expected.target.sizes());
    EXPECT_EQ(without.position(), with.position());
  }
}

TEST(ShapesOnly, ReadingAValueIsAnError) {
  auto shapes = shapes_only(*open(eleven_samples(), Split::kTrain, kVideoSpec, 1));
  const int64_t indices[] = {10, 0};
  Batch batch = shapes->gather(indices);
  EXPECT_EQ(batch.target.size(0), 2);
  EXPECT_ANY_THROW(batch.inputs[0].cpu());
  EXPECT_ANY_THROW(batch.target.sum().item<int64_t>());
  const int64_t outside[] = {11};
  EXPECT_ANY_THROW(shapes->gather(outside));
}

}  // namespace
}  // namespace yoke::data
