#include "yoke/checkpoint/tensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "yoke/base/error.h"
#include "yoke/checkpoint/format/test_folder.h"

namespace yoke::checkpoint {
namespace {

using format::DType;
using format::TestFolder;
using testing::HasSubstr;

torch::Tensor bytes_of(const torch::Tensor& tensor) {
  return tensor.contiguous().view(torch::kByte);
}

TEST(Tensors, ComeBackFromAFileBitForBit) {
  TestFolder folder;
  std::vector<NamedTensor> saved;
  for (int i = 0; i <= static_cast<int>(DType::kU64); ++i) {
    auto type = to_scalar_type(static_cast<DType>(i));
    EXPECT_EQ(to_dtype(type), static_cast<DType>(i));
    auto size = static_cast<int64_t>(format::size_of(static_cast<DType>(i)));
    auto noise = type == torch::kBool ? torch::randint(0, 2, {3, 2}, torch::kByte)
                                      : torch::randint(0, 256, {3, 2 * size}, torch::kByte);
    saved.emplace_back(std::string(format::name_of(static_cast<DType>(i))), noise.view(type));
  }
  saved.emplace_back("scalar", torch::tensor(3.5));
  saved.emplace_back("empty", torch::empty({0, 7}));
  save_tensors(folder / "t", saved, {{"format", "pt"}});
  TensorFile loaded = load_tensors(folder / "t");
  EXPECT_EQ(loaded.metadata.at("format"), "pt");
  std::map<std::string, torch::Tensor> by_name(loaded.tensors.begin(), loaded.tensors.end());
  ASSERT_EQ(by_name.size(), saved.size());
  for (const auto& [name, tensor] : saved) {
    const torch::Tensor& back = by_name.at(name);
    ASSERT_EQ(back.scalar_type(), tensor.scalar_type()) << name;
    ASSERT_EQ(back.sizes(), tensor.sizes()) << name;
    if (tensor.dim() > 0 && tensor.numel() > 0) {
      EXPECT_TRUE(torch::equal(bytes_of(back), bytes_of(tensor))) << name;
    }
  }
  EXPECT_EQ(by_name.at("scalar").item<float>(), 3.5f);
  EXPECT_FALSE(std::filesystem::exists(folder / "t.tmp"));
}

TEST(Tensors, AreWrittenRowMajorWhateverTheirLayout) {
  TestFolder folder;
  auto x = torch::randn({2, 3, 4, 5});
  save_tensors(folder / "t",
               {{"x", x.contiguous(at::MemoryFormat::ChannelsLast)}, {"y", x.permute({3, 2, 1, 0})}});
  auto tensors = load_tensors(folder / "t").tensors;
  EXPECT_TRUE(torch::equal(tensors[0].second, x));
  EXPECT_TRUE(torch::equal(tensors[1].second, x.permute({3, 2, 1, 0})));
  EXPECT_TRUE(tensors[0].second.is_contiguous());
}

TEST(Tensors, KeepTheMappingAlive) {
  TestFolder folder;
  save_tensors(folder / "t", {{"x", torch::arange(100000)}});
  torch::Tensor x = load_tensors(folder / "t").tensors[0].second;
  std::filesystem::remove(folder / "t");
  EXPECT_EQ(x.sum().item<int64_t>(), 100000LL * 99999 / 2);
}

TEST(Tensors, OfForeignFilesMayLieUnaligned) {
  TestFolder folder;
  std::string json = R"({"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
  while (json.size() % 4 != 1) json += ' ';
  std::string file(8, '\0');
  file[0] = static_cast<char>(json.size());
  float values[2] = {1.5f, -2};
  file += json + std::string(reinterpret_cast<char*>(values), 8);
  format::overwrite_file(folder / "t", file);
  EXPECT_TRUE(torch::equal(load_tensors(folder / "t").tensors[0].second, torch::tensor({1.5f, -2.0f})));
}

TEST(Tensors, OfTypesThatTheFormatLacksAreRefused) {
  TestFolder folder;
  EXPECT_THROW(save_tensors(folder / "t", {{"x", torch::zeros(2, torch::kComplexDouble)}}), ConfigError);
  EXPECT_THROW(load_tensors(folder / "nowhere"), ConfigError);
}

std::string refusal(const std::vector<NamedTensor>& saved, const std::vector<NamedTensor>& own) {
  try {
    restore_into(saved, own, "step-7, model");
  } catch (const CheckpointError& error) {
    EXPECT_THAT(error.what(), HasSubstr("step-7, model: a checkpoint of another model"));
    return error.what();
  }
  return "accepted";
}

TEST(Restore, CopiesByName) {
  auto a = torch::randn({2, 3}), b = torch::randn({4});
  auto own_a = torch::zeros({2, 3}).requires_grad_(), own_b = torch::zeros({4});
  restore_into({{"b", b}, {"a", a}}, {{"a", own_a}, {"b", own_b}}, "x");
  EXPECT_TRUE(torch::equal(own_a, a));
  EXPECT_TRUE(torch::equal(own_b, b));
}

TEST(Restore, RefusesEveryDifferenceAndCopiesNothingThen) {
  auto own = torch::zeros({2});
  EXPECT_THAT(refusal({{"a", torch::ones({2})}}, {{"a", own}, {"b", own}}), HasSubstr("\"b\" is not in it"));
  EXPECT_THAT(refusal({{"a", torch::ones({2})}, {"b", own}}, {{"a", own}}),
              HasSubstr("contains \"b\", which is not in this run"));
  EXPECT_THAT(refusal({{"a", torch::ones({3})}}, {{"a", own}}),
              HasSubstr("\"a\" is Float [3] in the file and Float [2] in this run"));
  EXPECT_THAT(refusal({{"a", torch::ones({2}, torch::kDouble)}}, {{"a", own}}),
              HasSubstr("Double [2] in the file"));
  EXPECT_EQ(own.sum().item<float>(), 0);
}

}  // namespace
}  // namespace yoke::checkpoint
