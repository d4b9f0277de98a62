#include "yoke/data/tensor_dataset.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "yoke/base/error.h"

namespace yoke::data {
namespace {

const SampleSpec kFour{.kind = SampleKind::kVector, .shape = {4}, .classes = 3};

TEST(TensorDataset, GathersRowsAndRefusesOtherShapes) {
  torch::Tensor inputs = torch::arange(12, torch::kFloat32).view({3, 4}), target = torch::tensor({2, 1, 0});
  auto set = of_tensors(inputs, target, kFour);
  std::vector<int64_t> rows = {2, 0};
  Batch batch = set->gather(rows);
  EXPECT_TRUE(batch.inputs.at(0).equal(inputs.index_select(0, torch::tensor({2, 0}))));
  EXPECT_TRUE(batch.target.equal(torch::tensor({0, 2})));
  EXPECT_EQ(batch.samples, 2);
  EXPECT_THROW(of_tensors(inputs, torch::zeros({2}), kFour), ConfigError);
  EXPECT_THROW(of_tensors(torch::zeros({3, 5}), target, kFour), ConfigError);
}

TEST(RegisterData, ChecksWhatIsOpenedAndLimitsIt) {
  auto open_rows = [](int64_t rows, int64_t width) {
    return [rows, width](const DataOptions&, Split, const SampleSpec&, uint64_t) {
      SampleSpec spec = kFour;
      spec.shape = {width};
      return of_tensors(torch::zeros({rows, width}), torch::zeros({rows}, torch::kLong), spec);
    };
  };
  register_data("rows_in_a_test", open_rows(10, 4));
  register_data("narrow_in_a_test", open_rows(10, 3));
  register_data("empty_in_a_test", open_rows(0, 4));
  DataOptions options;
  options.name = "rows_in_a_test";
  EXPECT_EQ(open(options, Split::kTrain, kFour, 1)->size(), 10);
  options.limit = 6;
  EXPECT_EQ(open(options, Split::kTrain, kFour, 1)->size(), 6);
  for (const char* wrong : {"narrow_in_a_test", "empty_in_a_test"}) {
    options.name = wrong;
    EXPECT_THROW(open(options, Split::kTrain, kFour, 1), ConfigError);
  }
  EXPECT_THROW(register_data("cifar10", open_rows(1, 4)), ConfigError);
}

}  // namespace
}  // namespace yoke::data
