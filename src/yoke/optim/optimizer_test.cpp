// Expected numbers were recorded with torch.optim of PyTorch 2.10 in fp64.
#include "yoke/optim/optimizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/cuda.h>
#include <torch/utils.h>

#include "yoke/base/error.h"
#include "yoke/kernels/optimizer_steps.h"

namespace yoke::optim {
namespace {

using testing::HasSubstr;

struct Case {
  const char* name;
  OptimizerOptions options;
  std::vector<double> expected;  // w row by row, then b
};

OptimizerOptions options_of(const char* optimizer, double weight_decay) {
  OptimizerOptions options;
  options.optimizer = optimizer;
  options.weight_decay = weight_decay;
  options.momentum = 0;
  return options;
}

std::vector<Case> cases() {
  std::vector<Case> all = {
      {"sgd",
       options_of("sgd", 0),
       {0.3562821435641047, -1.1496431717028905, 1.9302488833450073, 0.0, 3.0020262309595083,
        -0.5845606802882368, 1.0367512472766958, -2.041085985988144}},
      {"sgd with momentum and decay",
       options_of("sgd", 0.01),
       {0.2529250443267686, -1.015715970274029, 1.8892568772383125, 0.0, 2.983963291598112,
        -0.44351461753087573, 1.045144100248648, -2.051265612824611}},
      {"nesterov",
       options_of("sgd", 0.05),
       {0.18346610679589306, -0.889778026590028, 1.8102690169968643, 0.0, 2.936611017015452,
        -0.33298148102633723, 1.0647633585022596, -2.0678775383050767}},
      {"adamw",
       options_of("adamw", 0.1),
       {0.2835697878038087, -1.0493050471012868, 1.8537244201641947, 0.0, 2.8641522151529157,
        -0.528091662462399, 1.0671505990114047, -2.0599243651633605}},
      {"adagrad",
       options_of("adagrad", 0.02),
       {0.3193665080659189, -1.1392345714449048, 1.9219450202596418, 0.0, 2.9351409422150727,
        -0.5776604530166659, 1.070798909667208, -2.0683496021616437}},
  };
  all[1].options.momentum = 0.9;
  all[2].options.momentum = 0.8;
  all[2].options.nesterov = true;
  all[3].options.beta2 = 0.99;
  return all;
}

struct Problem {
  explicit Problem(torch::ScalarType type)
      : w(torch::tensor({{0.5, -1.25, 2.0}, {0.0, 3.0, -0.75}}, type).requires_grad_()),
        b(torch::tensor({1.0, -2.0}, type).requires_grad_()) {}

  // b has a gradient in every second step only.
  void set_gradients(int step) {
    torch::NoGradGuard no_grad;
    w.mutable_grad() = torch::sin(w * (step + 1));
    b.mutable_grad() = step % 2 == 0 ? torch::Tensor() : torch::cos(b + step);
  }
  void run(Optimizer& optimizer, int begin, int end) {
    for (int step = begin; step < end; ++step) {
      set_gradients(step);
      optimizer.step(0.1 / (1 + step));
    }
  }
  std::vector<NamedTensor> named() const { return {{"w", w}, {"b", b}}; }
  torch::Tensor all() const { return torch::cat({w.detach().flatten(), b.detach()}); }

  torch::Tensor w, b;
};

TEST(Optimizer, GivesTheNumbersOfTorchOptim) {
  for (const Case& c : cases()) {
    for (auto [type, tolerance] : {std::pair(torch::kDouble, 1e-12), std::pair(torch::kFloat, 1e-6)}) {
      Problem problem(type);
      auto optimizer = make(c.options, problem.named());
      problem.run(*optimizer, 0, 4);
      torch::Tensor error =
          (problem.all().to(torch::kDouble) - torch::tensor(c.expected, torch::kDouble)).abs();
      EXPECT_LT(error.max().item<double>(), tolerance) << c.name << " in " << type;
    }
  }
}

TEST(Optimizer, ParametersWithoutGradientChangeNothingForTheOthers) {
  for (const Case& c : cases()) {
    Problem problem(torch::kDouble);
    torch::Tensor idle = torch::ones({7}, torch::kDouble).requires_grad_();
    torch::Tensor other_type = torch::ones({3}, torch::kFloat).requires_grad_();
    auto optimizer =
        make(c.options, {{"idle", idle}, {"w", problem.w}, {"other_type", other_type}, {"b", problem.b}});
    problem.run(*optimizer, 0, 4);
    EXPECT_TRUE(problem.all().allclose(torch::tensor(c.expected, torch::kDouble), 0, 1e-12)) << c.name;
    EXPECT_TRUE(idle.equal(torch::ones({7}, torch::kDouble))) << c.name;
  }
}

TEST(Optimizer, CopyingItsStateGoesOnBitForBit) {
  for (torch::ScalarType type : {torch::kFloat, torch::kBFloat16}) {
    for (const Case& c : cases()) {
      Problem straight(type), first(type), second(type);
      auto whole = make(c.options, straight.named());
      straight.run(*whole, 0, 4);
      auto before = make(c.options, first.named());
      first.run(*before, 0, 2);

      auto after = make(c.options, second.named());
      auto from = before->state();
      auto to = after->state();
      ASSERT_EQ(from.size(), to.size());
      torch::NoGradGuard no_grad;
      for (size_t i = 0; i < from.size(); ++i) {
        EXPECT_EQ(from[i].first, to[i].first);
        to[i].second.copy_(from[i].second);
      }
      second.w.copy_(first.w);
      second.b.copy_(first.b);
      second.run(*after, 2, 4);
      EXPECT_TRUE(second.all().equal(straight.all())) << c.name << " in " << type;
    }
  }
}

TEST(Optimizer, StateHasNamesForACheckpoint) {
  auto names = [](const Case& c, torch::ScalarType type) {
    std::vector<std::string> found;
    for (auto& [name, tensor] : make(c.options, Problem(type).named())->state()) found.push_back(name);
    return found;
  };
  using Names = std::vector<std::string>;
  EXPECT_EQ(names(cases()[0], torch::kFloat), Names());
  EXPECT_EQ(names(cases()[1], torch::kFloat), (Names{"momentum/w", "momentum/b"}));
  EXPECT_EQ(names(cases()[3], torch::kBFloat16), (Names{"step", "master/w", "master/b", "exp_avg/w",
                                                        "exp_avg/b", "exp_avg_sq/w", "exp_avg_sq/b"}));
  EXPECT_EQ(names(cases()[4], torch::kFloat), (Names{"step", "sum/w", "sum/b"}));
}

TEST(Optimizer, StepsOfAParameterCountOnlyItsOwnUpdates) {
  Problem problem(torch::kFloat);
  auto optimizer = make(cases()[3].options, problem.named());
  problem.run(*optimizer, 0, 3);
  EXPECT_TRUE(optimizer->state()[0].second.equal(torch::tensor({3.0f, 1.0f})));
}

TEST(Optimizer, MastersKeepWhatLowPrecisionWouldLose) {
  for (torch::ScalarType type : {torch::kBFloat16, torch::kHalf}) {
    torch::Tensor w = torch::ones({2, 3}, type).requires_grad_();
    auto optimizer = make(options_of("sgd", 0), {{"w", w}});
    for (int i = 0; i < 64; ++i) {
      w.mutable_grad() = torch::ones({2, 3}, type);
      optimizer->step(0x1p-12);  // a single one rounds away
    }
    EXPECT_TRUE(w.equal(torch::full({2, 3}, 1 - 0x1p-6, type))) << type;
    EXPECT_EQ(optimizer->state()[0].second.scalar_type(), torch::kFloat);
    EXPECT_EQ(w.grad().scalar_type(), type);
  }
}

TEST(Optimizer, GradientsMayLieInMemoryInAnotherOrder) {
  for (const Case& c : cases()) {
    Problem plain(torch::kDouble), turned(torch::kDouble);
    auto a = make(c.options, plain.named());
    auto b = make(c.options, turned.named());
    plain.set_gradients(1);
    turned.set_gradients(1);
    turned.w.mutable_grad() = turned.w.grad().t().contiguous().t();
    a->step(0.1);
    b->step(0.1);
    EXPECT_TRUE(plain.all().equal(turned.all())) << c.name;
  }
}

TEST(Optimizer, AnExplicitEpsIsTaken) {
  auto step_with = [](const char* optimizer, double eps) {
    torch::Tensor w = torch::zeros({1}, torch::kDouble).requires_grad_();
    OptimizerOptions options = options_of(optimizer, 0);
    options.eps = eps;
    auto made = make(options, {{"w", w}});
    w.mutable_grad() = torch::full({1}, 1e-9, torch::kDouble);
    made->step(1);
    return -w.item<double>();  // gradient / (|gradient| + eps)
  };
  for (double eps : {1e-8, 1e-9}) {
    EXPECT_NEAR(step_with("adagrad", eps), 1e-9 / (1e-9 + eps), 1e-12);
    EXPECT_NEAR(step_with("adamw", eps), 1e-9 / (1e-9 + eps), 1e-7);
  }
  EXPECT_NEAR(step_with("adagrad", 0), 1e-9 / (1e-9 + 1e-10), 1e-12);  // torch.optim's defaults
  EXPECT_NEAR(step_with("adamw", 0), 1e-9 / (1e-9 + 1e-8), 1e-7);
}

torch::Tensor sparse_gradient(double factor) {
  torch::Tensor values = torch::tensor({{1., 2.}, {3., -4.}, {.5, .25}}, torch::kDouble) * factor;
  return torch::sparse_coo_tensor(torch::tensor({{0, 2, 0}}), values, {3, 2});
}

TEST(Optimizer, AdagradTakesSparseGradientsAsTorchOptimDoes) {
  torch::Tensor w = torch::ones({3, 2}, torch::kDouble).requires_grad_();
  auto optimizer = make(options_of("adagrad", 0), {{"w", w}});
  for (int step = 0; step < 3; ++step) {
    w.mutable_grad() = sparse_gradient(step + 1);
    optimizer->step(0.1);
  }
  torch::Tensor expected = torch::tensor(
      {{0.730378908337043, 0.7303789083334558}, {1.0, 1.0}, {0.730378908331662, 1.2696210916696833}},
      torch::kDouble);
  EXPECT_TRUE(w.allclose(expected, 0, 1e-12));
}

TEST(Optimizer, SgdTakesSparseGradientsAsIfTheyWereDense) {
  for (double momentum : {0.0, 0.9}) {
    OptimizerOptions options = options_of("sgd", 0);
    options.momentum = momentum;
    torch::Tensor sparse = torch::ones({3, 2}, torch::kDouble).requires_grad_();
    torch::Tensor dense = torch::ones({3, 2}, torch::kDouble).requires_grad_();
    auto a = make(options, {{"w", sparse}});
    auto b = make(options, {{"w", dense}});
    for (int step = 1; step < 4; ++step) {
      sparse.mutable_grad() = sparse_gradient(step);
      dense.mutable_grad() = sparse_gradient(step).to_dense();
      a->step(0.1);
      b->step(0.1);
    }
    EXPECT_TRUE(sparse.allclose(dense, 0, 1e-14));
  }
}

OptimizerOptions sparsifying(const char* name) {
  OptimizerOptions options = options_of(name, 0);
  options.l1 = 0.3;
  options.l2 = 0.05;
  options.ftrl_beta = 0.7;
  return options;
}

// The servers' kernels, which have the formulas of the papers.
TEST(Optimizer, SparsifyingRulesEqualTheirKernels) {
  constexpr double kLr = 0.2;
  for (const char* name : {"ftrl", "proximal"}) {
    OptimizerOptions o = sparsifying(name);
    torch::Tensor w = torch::tensor({0.5, -1.25, 0.0, 0.02, 3.0}, torch::kDouble).requires_grad_();
    torch::Tensor expected = w.detach().clone(), linear = torch::zeros(5, torch::kDouble),
                  sum = torch::zeros(5, torch::kDouble);
    auto optimizer = make(o, {{"w", w}});
    auto* values = expected.data_ptr<double>();
    for (int step = 0; step < 30; ++step) {
      torch::Tensor gradient = torch::sin(w.detach() * (step + 1) + 0.3);
      const auto* g = gradient.const_data_ptr<double>();
      if (o.optimizer == "ftrl")
        kernels::ftrl<double>({kLr, o.ftrl_beta, o.l1, o.l2}, 1, g, values, values, linear.data_ptr<double>(),
                              sum.data_ptr<double>(), 5);
      else
        kernels::proximal<double>({kLr, o.l1, o.l2}, 1, g, values, values, 5);
      w.mutable_grad() = gradient;
      optimizer->step(kLr);
      EXPECT_TRUE(w.allclose(expected, 1e-12, 1e-14)) << name << " step " << step << "\n" << w << expected;
    }
  }
}

// FTRL does not move rows without a gradient, and proximal gradient takes the penalty off all of them.
TEST(Optimizer, SparsifyingRulesDoTheSameToASparseGradientAsToADenseOne) {
  for (const char* name : {"ftrl", "proximal"}) {
    const bool moves_all = std::string(name) == "proximal";
    torch::Tensor sparse = torch::ones({3, 2}, torch::kDouble).requires_grad_();
    torch::Tensor dense = torch::ones({3, 2}, torch::kDouble).requires_grad_();
    auto a = make(sparsifying(name), {{"w", sparse}});
    auto b = make(sparsifying(name), {{"w", dense}});
    for (int step = 1; step < 4; ++step) {
      sparse.mutable_grad() = sparse_gradient(step);
      dense.mutable_grad() = sparse_gradient(step).to_dense();
      a->step(0.1);
      b->step(0.1);
    }
    for (int64_t row : {0, 2}) EXPECT_TRUE(sparse[row].allclose(dense[row], 1e-12)) << name;
    if (moves_all) {
      EXPECT_TRUE(sparse[1].allclose(dense[1], 1e-12));
    }
    EXPECT_EQ(sparse[1].equal(torch::ones(2, torch::kDouble)), !moves_all) << name;
  }
}

TEST(Optimizer, AnL1PenaltyMakesWeightsExactlyZero) {
  for (const char* name : {"ftrl", "proximal"}) {
    torch::Tensor w = torch::zeros({2}, torch::kDouble).requires_grad_();
    auto optimizer = make(sparsifying(name), {{"w", w}});
    for (int step = 0; step < 50; ++step) {  // the first has its minimum near 2, the second has noise only
      const double noise = step % 2 == 0 ? 0.1 : -0.1;
      w.mutable_grad() = torch::stack({w.detach()[0] - 2, torch::tensor(noise, torch::kDouble)});
      optimizer->step(0.5);
      EXPECT_EQ(w[1].item<double>(), 0.0) << name;
    }
    EXPECT_GT(w[0].item<double>(), 1.0) << name;
  }
}

TEST(Optimizer, ZeroGradMakesGradientsAbsent) {
  Problem problem(torch::kFloat);
  auto optimizer = make(cases()[1].options, problem.named());
  problem.set_gradients(1);
  optimizer->zero_grad();
  EXPECT_FALSE(problem.w.grad().defined());
  torch::Tensor before = problem.all().clone();
  optimizer->step(0.1);
  EXPECT_TRUE(problem.all().equal(before));
}

template <class E>
std::string message(const std::function<void()>& action) {
  try {
    action();
  } catch (const E& error) {
    return error.what();
  }
  return "nothing was thrown";
}

TEST(Optimizer, RefusesWhatCannotWork) {
  EXPECT_THAT(message<ConfigError>([] { make(options_of("adam", 0), {}); }),
              HasSubstr("Accepted: adagrad, adamw, ftrl, lamb, lars, lbfgs, lion, proximal, sgd"));
  EXPECT_THAT(message<ConfigError>([] {
                auto options = options_of("sgd", 0);
                options.nesterov = true;
                make(options, {});
              }),
              HasSubstr("train.momentum"));
  EXPECT_THAT(message<ConfigError>([] { make(options_of("lbfgs", 0.1), {}); }), HasSubstr("weight_decay"));
  for (const char* name : {"ftrl", "proximal"})
    EXPECT_THAT(message<ConfigError>([&] { make(options_of(name, 0.1), {}); }), HasSubstr("set train.l2"));

  auto with_sparse = [](OptimizerOptions options) {
    torch::Tensor w = torch::ones({3, 2}, torch::kDouble).requires_grad_();
    w.mutable_grad() = sparse_gradient(1);
    make(options, {{"embedding", w}})->step(0.1);
  };
  EXPECT_THAT(message<ConfigError>([&] { with_sparse(options_of("adamw", 0)); }), HasSubstr("'embedding'"));
  EXPECT_THAT(message<ConfigError>([&] { with_sparse(options_of("adagrad", 0.1)); }),
              HasSubstr("weight_decay"));
  EXPECT_THAT(message<std::exception>([] {
                make(options_of("sgd", 0), {{"ids", torch::arange(3)}});
              }),
              HasSubstr("'ids'"));
}

// Our kernel beside LibTorch's fused operator, which fp64 gradients get; sizes with tails and an odd offset.
TEST(Optimizer, AdamWOnCudaEqualsTheCpu) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "no GPU here";
  for (torch::ScalarType type : {torch::kFloat, torch::kBFloat16, torch::kHalf}) {
    OptimizerOptions options;
    options.optimizer = "adamw";
    options.weight_decay = 0.1;
    torch::manual_seed(4);
    torch::Tensor home = torch::randn({3000}).to(type);
    std::vector<NamedTensor> ours, theirs;
    for (auto [offset, size] :
         std::vector<std::pair<int64_t, int64_t>>{{0, 1024}, {1025, 77}, {1200, 1}, {1208, 1700}}) {
      std::string name = std::to_string(offset);
      theirs.emplace_back(name, home.narrow(0, offset, size).clone().requires_grad_());
      ours.emplace_back(name, home.to(torch::kCUDA).narrow(0, offset, size).detach().requires_grad_());
    }
    auto a = make(options, ours), b = make(options, theirs);
    for (int step = 0; step < 5; ++step) {
      for (size_t i = 0; i < ours.size(); ++i) {
        torch::Tensor gradient = torch::randn_like(theirs[i].second);
        theirs[i].second.mutable_grad() = gradient;
        ours[i].second.mutable_grad() = gradient.to(torch::kCUDA);
      }
      a->set_lr(0.01);
      b->set_lr(0.01);
      a->update({});
      b->update({});
    }
    auto left = a->state(), right = b->state();
    for (size_t i = 0; i < left.size(); ++i)
      EXPECT_TRUE(left[i].second.cpu().allclose(right[i].second, 1e-5, 1e-6)) << left[i].first;
    for (size_t i = 0; i < ours.size(); ++i)
      EXPECT_TRUE(ours[i].second.cpu().allclose(theirs[i].second, 1e-2, 1e-5))
          << ours[i].first << " " << type;
  }
}

}  // namespace
}  // namespace yoke::optim
