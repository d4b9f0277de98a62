// Expected numbers were recorded with torch.optim.LBFGS of PyTorch 2.10 in fp64.
#include <gtest/gtest.h>
#include <torch/utils.h>

#include "yoke/optim/optimizer.h"

namespace yoke::optim {
namespace {

OptimizerOptions options() {
  OptimizerOptions o;
  o.optimizer = "lbfgs";
  o.history = 3;
  o.inner_steps = 4;
  return o;
}

// A quadratic with a quartic term, over two parameters.
struct Problem {
  explicit Problem(torch::ScalarType type)
      : matrix(
            torch::tensor({{3., 1., 0., .5}, {1., 4., 1., 0.}, {0., 1., 2., .25}, {.5, 0., .25, 5.}}, type)),
        target(torch::tensor({1., -2., 3., .5}, type)),
        w(torch::tensor({.1, .2}, type).requires_grad_()),
        b(torch::tensor({-.3, .4}, type).requires_grad_()) {}

  torch::Tensor loss() {
    ++evaluations;
    torch::Tensor x = torch::cat({w, b});
    torch::Tensor value = 0.5 * x.dot(matrix.mv(x)) - target.dot(x) + x.pow(4).sum() * 0.1;
    value.backward();
    return value;
  }
  void run(Optimizer& optimizer, int steps) {
    for (int i = 0; i < steps; ++i) optimizer.step(0.8, [this] { return loss(); });
  }
  std::vector<NamedTensor> named() const { return {{"w", w}, {"b", b}}; }
  torch::Tensor all() const { return torch::cat({w.detach(), b.detach()}); }

  torch::Tensor matrix, target, w, b;
  int evaluations = 0;
};

TEST(Lbfgs, GivesTheNumbersOfTorchOptim) {
  for (auto [type, tolerance] : {std::pair(torch::kDouble, 1e-12), std::pair(torch::kFloat, 1e-6)}) {
    Problem problem(type);
    auto optimizer = make(options(), problem.named());
    problem.run(*optimizer, 3);
    torch::Tensor expected = torch::tensor(
        {0.6163467691413056, -0.9266428915674442, 1.4084884550542065, -0.0320571624133924}, torch::kDouble);
    EXPECT_TRUE(problem.all().to(torch::kDouble).allclose(expected, 0, tolerance)) << problem.all();
    EXPECT_EQ(problem.evaluations, 11);
  }
}

TEST(Lbfgs, SearchesStepLengthsLikeTorchOptim) {
  OptimizerOptions searching = options();
  searching.line_search = "strong_wolfe";
  Problem problem(torch::kDouble);
  auto optimizer = make(searching, problem.named());
  problem.run(*optimizer, 3);
  torch::Tensor expected = torch::tensor(
      {0.6163467691413056, -0.9266428915674441, 1.4084884550542065, -0.03205716241339239}, torch::kDouble);
  EXPECT_TRUE(problem.all().allclose(expected, 0, 1e-12)) << problem.all();
  EXPECT_EQ(problem.evaluations, 13);
}

// A checkpoint takes other names for lists with one number per parameter.
TEST(Lbfgs, ItsStateConsistsOfWholeTensors) {
  Problem problem(torch::kDouble);
  for (const auto& [name, tensor] : make(options(), problem.named())->state())
    EXPECT_NE(name.find('/'), std::string::npos) << name;
}

TEST(Lbfgs, CopyingItsStateGoesOnBitForBit) {
  Problem straight(torch::kFloat), first(torch::kFloat), second(torch::kFloat);
  auto whole = make(options(), straight.named());
  straight.run(*whole, 3);
  auto before = make(options(), first.named());
  first.run(*before, 2);
  auto after = make(options(), second.named());
  auto from = before->state();
  auto to = after->state();
  {
    torch::NoGradGuard no_grad;
    for (size_t i = 0; i < from.size(); ++i) to[i].second.copy_(from[i].second);
    second.w.copy_(first.w);
    second.b.copy_(first.b);
  }
  second.run(*after, 1);
  EXPECT_TRUE(second.all().equal(straight.all()));
}

TEST(Lbfgs, StopsAtAMinimum) {
  Problem problem(torch::kDouble);
  auto optimizer = make(options(), problem.named());
  problem.run(*optimizer, 30);
  problem.evaluations = 0;
  torch::Tensor before = problem.all();
  problem.run(*optimizer, 1);
  EXPECT_EQ(problem.evaluations, 1);
  EXPECT_TRUE(problem.all().equal(before));
}

TEST(Lbfgs, NeedsALossFunction) {
  Problem problem(torch::kDouble);
  EXPECT_THROW(make(options(), problem.named())->step(1.0), std::exception);
}

}  // namespace
}  // namespace yoke::optim
