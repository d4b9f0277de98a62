#include "yoke/models/inception_v3/mixed.h"

#include "yoke/compute/layers.h"

namespace yoke::models {
namespace {

// Kernels, named height by width, that keep the side; and the one that halves it.
constexpr ConvOptions k5x5{.kernel = {5, 5}, .padding = {2, 2}};
constexpr ConvOptions k3x3{.kernel = {3, 3}, .padding = {1, 1}};
constexpr ConvOptions k1x7{.kernel = {1, 7}, .padding = {0, 3}};
constexpr ConvOptions k7x1{.kernel = {7, 1}, .padding = {3, 0}};
constexpr ConvOptions k1x3{.kernel = {1, 3}, .padding = {0, 1}};
constexpr ConvOptions k3x1{.kernel = {3, 1}, .padding = {1, 0}};
constexpr ConvOptions kHalve{.kernel = {3, 3}, .stride = {2, 2}};

// Before a 1x1 convolution without bias, says the paper. It gives the same behind it, where there are fewer
// channels.
torch::Tensor smooth(const torch::Tensor& x) {
  return at::avg_pool2d(x, {3, 3}, {1, 1}, {1, 1});
}

torch::Tensor halve(const torch::Tensor& x) {
  return compute::max_pool2d(x, /*kernel=*/3, /*stride=*/2);
}

torch::Tensor join_channels(const std::vector<torch::Tensor>& parts) {
  return at::cat(parts, /*dim=*/1);
}

class MixedA : public Mixed {
 public:
  MixedA(int64_t in, int64_t pool_width)
      : b1x1_(branch("branch1x1", in, 64)),
        b5x5_1_(branch("branch5x5_1", in, 48)),
        b5x5_2_(branch("branch5x5_2", 48, 64, k5x5)),
        b3x3dbl_1_(branch("branch3x3dbl_1", in, 64)),
        b3x3dbl_2_(branch("branch3x3dbl_2", 64, 96, k3x3)),
        b3x3dbl_3_(branch("branch3x3dbl_3", 96, 96, k3x3)),
        pool_(branch("branch_pool", in, pool_width)) {}

  torch::Tensor forward(const torch::Tensor& x) const override {
    return join_channels(
        {b1x1_(x), b5x5_2_(b5x5_1_(x)), b3x3dbl_3_(b3x3dbl_2_(b3x3dbl_1_(x))), pool_(x, smooth)});
  }

 protected:
  Wiring wiring() const override {
    return {{{"branch1x1", ""},
             {"branch5x5_1", ""},
             {"branch5x5_2", "branch5x5_1"},
             {"branch3x3dbl_1", ""},
             {"branch3x3dbl_2", "branch3x3dbl_1"},
             {"branch3x3dbl_3", "branch3x3dbl_2"},
             {"branch_pool", "", smooth}},
            {"branch1x1", "branch5x5_2", "branch3x3dbl_3", "branch_pool"}};
  }

 private:
  NormedConv &b1x1_, &b5x5_1_, &b5x5_2_, &b3x3dbl_1_, &b3x3dbl_2_, &b3x3dbl_3_, &pool_;
};

class MixedB : public Mixed {
 public:
  explicit MixedB(int64_t in)
      : b3x3_(branch("branch3x3", in, 384, kHalve)),
        b3x3dbl_1_(branch("branch3x3dbl_1", in, 64)),
        b3x3dbl_2_(branch("branch3x3dbl_2", 64, 96, k3x3)),
        b3x3dbl_3_(branch("branch3x3dbl_3", 96, 96, kHalve)) {}

  torch::Tensor forward(const torch::Tensor& x) const override {
    return join_channels({b3x3_(x), b3x3dbl_3_(b3x3dbl_2_(b3x3dbl_1_(x))), halve(x)});
  }

 protected:
  Wiring wiring() const override {
    return {{{"branch3x3", ""},
             {"branch3x3dbl_1", ""},
             {"branch3x3dbl_2", "branch3x3dbl_1"},
             {"branch3x3dbl_3", "branch3x3dbl_2"},
             {"pool", "", halve}},
            {"branch3x3", "branch3x3dbl_3", "pool"}};
  }

 private:
  NormedConv &b3x3_, &b3x3dbl_1_, &b3x3dbl_2_, &b3x3dbl_3_;
};

class MixedC : public Mixed {
 public:
  MixedC(int64_t in, int64_t inner)
      : b1x1_(branch("branch1x1", in, 192)),
        b7x7_1_(branch("branch7x7_1", in, inner)),
        b7x7_2_(branch("branch7x7_2", inner, inner, k1x7)),
        b7x7_3_(branch("branch7x7_3", inner, 192, k7x1)),
        b7x7dbl_1_(branch("branch7x7dbl_1", in, inner)),
        b7x7dbl_2_(branch("branch7x7dbl_2", inner, inner, k7x1)),
        b7x7dbl_3_(branch("branch7x7dbl_3", inner, inner, k1x7)),
        b7x7dbl_4_(branch("branch7x7dbl_4", inner, inner, k7x1)),
        b7x7dbl_5_(branch("branch7x7dbl_5", inner, 192, k1x7)),
        pool_(branch("branch_pool", in, 192)) {}

  torch::Tensor forward(const torch::Tensor& x) const override {
    torch::Tensor once = b7x7_3_(b7x7_2_(b7x7_1_(x)));
    torch::Tensor twice = b7x7dbl_5_(b7x7dbl_4_(b7x7dbl_3_(b7x7dbl_2_(b7x7dbl_1_(x)))));
    return join_channels({b1x1_(x), once, twice, pool_(x, smooth)});
  }

 protected:
  Wiring wiring() const override {
    return {{{"branch1x1", ""},
             {"branch7x7_1", ""},
             {"branch7x7_2", "branch7x7_1"},
             {"branch7x7_3", "branch7x7_2"},
             {"branch7x7dbl_1", ""},
             {"branch7x7dbl_2", "branch7x7dbl_1"},
             {"branch7x7dbl_3", "branch7x7dbl_2"},
             {"branch7x7dbl_4", "branch7x7dbl_3"},
             {"branch7x7dbl_5", "branch7x7dbl_4"},
             {"branch_pool", "", smooth}},
            {"branch1x1", "branch7x7_3", "branch7x7dbl_5", "branch_pool"}};
  }

 private:
  NormedConv &b1x1_, &b7x7_1_, &b7x7_2_, &b7x7_3_;
  NormedConv &b7x7dbl_1_, &b7x7dbl_2_, &b7x7dbl_3_, &b7x7dbl_4_, &b7x7dbl_5_, &pool_;
};

class MixedD : public Mixed {
 public:
  explicit MixedD(int64_t in)
      : b3x3_1_(branch("branch3x3_1", in, 192)),
        b3x3_2_(branch("branch3x3_2", 192, 320, kHalve)),
        b7x7x3_1_(branch("branch7x7x3_1", in, 192)),
        b7x7x3_2_(branch("branch7x7x3_2", 192, 192, k1x7)),
        b7x7x3_3_(branch("branch7x7x3_3", 192, 192, k7x1)),
        b7x7x3_4_(branch("branch7x7x3_4", 192, 192, kHalve)) {}

  torch::Tensor forward(const torch::Tensor& x) const override {
    return join_channels({b3x3_2_(b3x3_1_(x)), b7x7x3_4_(b7x7x3_3_(b7x7x3_2_(b7x7x3_1_(x)))), halve(x)});
  }

 protected:
  Wiring wiring() const override {
    return {{{"branch3x3_1", ""},
             {"branch3x3_2", "branch3x3_1"},
             {"branch7x7x3_1", ""},
             {"branch7x7x3_2", "branch7x7x3_1"},
             {"branch7x7x3_3", "branch7x7x3_2"},
             {"branch7x7x3_4", "branch7x7x3_3"},
             {"pool", "", halve}},
            {"branch3x3_2", "branch7x7x3_4", "pool"}};
  }

 private:
  NormedConv &b3x3_1_, &b3x3_2_, &b7x7x3_1_, &b7x7x3_2_, &b7x7x3_3_, &b7x7x3_4_;
};

class MixedE : public Mixed {
 public:
  explicit MixedE(int64_t in)
      : b1x1_(branch("branch1x1", in, 320)),
        b3x3_1_(branch("branch3x3_1", in, 384)),
        b3x3_2a_(branch("branch3x3_2a", 384, 384, k1x3)),
        b3x3_2b_(branch("branch3x3_2b", 384, 384, k3x1)),
        b3x3dbl_1_(branch("branch3x3dbl_1", in, 448)),
        b3x3dbl_2_(branch("branch3x3dbl_2", 448, 384, k3x3)),
        b3x3dbl_3a_(branch("branch3x3dbl_3a", 384, 384, k1x3)),
        b3x3dbl_3b_(branch("branch3x3dbl_3b", 384, 384, k3x1)),
        pool_(branch("branch_pool", in, 192)) {}

  torch::Tensor forward(const torch::Tensor& x) const override {
    torch::Tensor once = b3x3_1_(x);
    torch::Tensor twice = b3x3dbl_2_(b3x3dbl_1_(x));
    return join_channels(
        {b1x1_(x), b3x3_2a_(once), b3x3_2b_(once), b3x3dbl_3a_(twice), b3x3dbl_3b_(twice), pool_(x, smooth)});
  }

 protected:
  Wiring wiring() const override {
    return {
        {{"branch1x1", ""},
         {"branch3x3_1", ""},
         {"branch3x3_2a", "branch3x3_1"},
         {"branch3x3_2b", "branch3x3_1"},
         {"branch3x3dbl_1", ""},
         {"branch3x3dbl_2", "branch3x3dbl_1"},
         {"branch3x3dbl_3a", "branch3x3dbl_2"},
         {"branch3x3dbl_3b", "branch3x3dbl_2"},
         {"branch_pool", "", smooth}},
        {"branch1x1", "branch3x3_2a", "branch3x3_2b", "branch3x3dbl_3a", "branch3x3dbl_3b", "branch_pool"}};
  }

 private:
  NormedConv &b1x1_, &b3x3_1_, &b3x3_2a_, &b3x3_2b_;
  NormedConv &b3x3dbl_1_, &b3x3dbl_2_, &b3x3dbl_3a_, &b3x3dbl_3b_, &pool_;
};

}  // namespace

NormedConv::NormedConv(int64_t in, int64_t out, ConvOptions options) {
  options.bias = false;
  conv_ = add<Conv2d>(*this, "conv", in, out, options);
  bn_ = add<torch::nn::BatchNorm2dImpl>(*this, "bn", torch::nn::BatchNorm2dOptions(out).eps(0.001));
}

torch::Tensor NormedConv::operator()(const torch::Tensor& x, Pooling pooling) const {
  torch::Tensor y = conv_->forward(x);
  return compute::batch_norm_relu(*bn_, pooling != nullptr ? pooling(y) : y);
}

int64_t Mixed::multiply_adds(int64_t side) const {
  int64_t count = 0;
  for (const auto& child : children()) count += static_cast<const NormedConv&>(*child).multiply_adds(side);
  return count;
}

std::vector<Block> Mixed::nodes(const std::shared_ptr<Mixed>& self, const std::string& name,
                                const std::string& input) {
  const Wiring wiring = self->wiring();
  std::vector<Block> nodes;
  for (const Part& part : wiring.parts) {
    std::shared_ptr<NormedConv> conv;
    for (const auto& child : self->named_children())
      if (child.key() == part.name) conv = std::dynamic_pointer_cast<NormedConv>(child.value());
    auto forward = [conv, pooling = part.pooling](const Tensors& inputs) -> Tensors {
      return {conv ? (*conv)(inputs.at(0), pooling) : pooling(inputs.at(0))};
    };
    std::vector<std::shared_ptr<torch::nn::Module>> modules;
    if (conv) modules.push_back(conv);
    nodes.push_back(
        {name + "." + part.name, forward, modules, {part.reads.empty() ? input : name + "." + part.reads}});
  }
  auto join = [](const Tensors& inputs) -> Tensors { return {join_channels(inputs)}; };
  nodes.push_back({name, join, {}, {}});
  for (const std::string& one : wiring.joined) nodes.back().inputs.push_back(name + "." + one);
  return nodes;
}

NormedConv& Mixed::branch(const std::string& name, int64_t in, int64_t out, const ConvOptions& options) {
  return *add<NormedConv>(*this, name, in, out, options);
}

std::shared_ptr<Mixed> make_mixed_a(int64_t in, int64_t pool_width) {
  return std::make_shared<MixedA>(in, pool_width);
}
std::shared_ptr<Mixed> make_mixed_b(int64_t in) {
  return std::make_shared<MixedB>(in);
}
std::shared_ptr<Mixed> make_mixed_c(int64_t in, int64_t inner_width) {
  return std::make_shared<MixedC>(in, inner_width);
}
std::shared_ptr<Mixed> make_mixed_d(int64_t in) {
  return std::make_shared<MixedD>(in);
}
std::shared_ptr<Mixed> make_mixed_e(int64_t in) {
  return std::make_shared<MixedE>(in);
}

}  // namespace yoke::models
