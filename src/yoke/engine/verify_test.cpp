// Layouts that are right pass, and layouts that are broken on purpose are found.
#include "yoke/engine/verify.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "yoke/engine/verify_trainee.h"
#include "yoke/parallel/common/forwarding.h"

namespace yoke::engine {
namespace {

using Tensors = std::vector<torch::Tensor>;
using Pieces = std::vector<parallel::StatePiece>;

constexpr double kTolerance = 1e-10;

TEST(Difference, IsRelativeToTheLargestOfTheReference) {
  EXPECT_DOUBLE_EQ(relative_difference(1.5, 1.0), 0.5);
  EXPECT_DOUBLE_EQ(relative_difference(2e-9, 1e-9), 1) << "small numbers that are all wrong";
  EXPECT_EQ(relative_difference(0.0, 0.0), 0);
  EXPECT_DOUBLE_EQ(relative_difference({torch::tensor({1e-6, 0.0}), torch::tensor({4e-6})},
                                       {torch::tensor({2e-6, 0.0}), torch::tensor({4e-6})}),
                   0.25);
}

TEST(Difference, IsInfiniteWhereThereIsNothingToCompare) {
  const torch::Tensor one = torch::ones({2}), none;
  const torch::Tensor nan = torch::full({2}, NAN), inf = torch::full({2}, INFINITY);
  for (const auto& [ours, reference] : {std::pair<Tensors, Tensors>({one}, {}),
                                        {{}, {one}},
                                        {{}, {}},
                                        {{none}, {none}},
                                        {{one}, {none}},
                                        {{none, one}, {one, one}},
                                        {{one, one}, {one}},
                                        {{torch::ones({1, 2})}, {one}},
                                        {{nan}, {one}},
                                        {{one}, {nan}},
                                        {{nan}, {nan}},
                                        {{inf}, {inf}},
                                        {{inf}, {one}},
                                        {{one}, {torch::zeros({2})}}})
    EXPECT_EQ(relative_difference(ours, reference), kInfinitelyApart) << ours << reference;
  EXPECT_EQ(relative_difference(NAN, NAN), kInfinitelyApart);
  EXPECT_EQ(relative_difference(1.0, 0.0), kInfinitelyApart);
  EXPECT_EQ(relative_difference({one, none}, {one, none}), 0) << "a parameter that nobody uses";
}

// A strategy with one thing changed.
struct Changed : parallel::Forwarding {
  using Forwarding::Forwarding;

  parallel::ComputeResult compute(const Tensors& inputs, const torch::Tensor& target,
                                  const parallel::MicroBatch& micro) override {
    parallel::MicroBatch used = micro;
    used.weight *= weight;
    torch::Tensor labels = other_targets ? target.flip(0).contiguous() : target;
    parallel::ComputeResult result = inner->compute(inputs, labels, used);
    if (after_compute) after_compute();
    return result;
  }
  parallel::StepNews agree(const parallel::StepNews& here) override {
    parallel::StepNews all = inner->agree(here);
    all.loss = all.loss * loss_factor;
    return all;
  }
  Pieces gradients() override {
    return change_gradients ? change_gradients(inner->gradients()) : inner->gradients();
  }
  parallel::CommitResult commit(const parallel::CommitOptions& options) override {
    parallel::CommitOptions used = options;
    used.lr *= lr_factor;
    parallel::CommitResult result = inner->commit(used);
    if (after_commit) after_commit();
    return result;
  }

  double weight = 1, loss_factor = 1, lr_factor = 1;
  bool other_targets = false;
  std::function<Pieces(Pieces)> change_gradients;
  std::function<void()> after_compute, after_commit;
};

using Break = std::function<void(Changed&, Worker&)>;

VerifyOptions two_replicas() {
  VerifyOptions options;
  options.alone.model.name = "mlp";
  options.alone.model.sizes = {784, 8, 10};
  options.alone.optimizer.optimizer = "sgd";
  options.alone.optimizer.lr = 0.05;
  options.alone.compute.threads = 1;
  options.alone.batch_size = 8;
  options.parallel = options.alone;
  options.parallel.batch_size = 4;
  options.ranks = 2;
  options.data.samples = 24;
  options.steps = 3;
  return options;
}

VerifyOptions two_stages() {
  VerifyOptions options = two_replicas();
  options.parallel.batch_size = 8;
  options.parallel.parallel.pipeline = 2;
  options.parallel.pipeline.microbatches = 2;
  return options;
}

VerifyOptions two_workers() {
  VerifyOptions options = two_replicas();
  options.parallel.parallel.sync = "ps";
  return options;
}

// Of `options` with `how` done to one rank.
Differences broken(VerifyOptions options, int rank, const Break& how) {
  options.tamper = [&](int who, Worker& worker) {
    if (who != rank) return;
    auto changed = std::make_unique<Changed>(std::move(worker.strategy));
    how(*changed, worker);
    worker.strategy = std::move(changed);
  };
  return verify(options).worst;
}

torch::Tensor last_parameter(const Worker& worker) {
  return worker.model.module->parameters().back();
}

void nudge(const torch::Tensor& parameter, double by) {
  torch::NoGradGuard no_grad;
  torch::Tensor{parameter}.view({-1})[0] += by;
}

TEST(Verify, FindsNothingInLayoutsThatAreRight) {
  for (const VerifyOptions& options : {two_replicas(), two_stages(), two_workers()})
    EXPECT_LT(broken(options, 1, [](Changed&, Worker&) {}).largest(), kTolerance);
}

TEST(Verify, FindsEveryWayToBreakReplicas) {
  auto first_gradient = [](auto change) {
    return [change](Changed& c, Worker&) {
      c.change_gradients = [change](Pieces all) {
        change(all);
        return all;
      };
    };
  };
  const std::pair<const char*, Break> ways[] = {
      {"a gradient counts twice", [](Changed& c, Worker&) { c.weight = 2; }},
      {"a rank trains on other targets", [](Changed& c, Worker&) { c.other_targets = true; }},
      {"a rank has another learning rate", [](Changed& c, Worker&) { c.lr_factor = 1.0001; }},
      {"a rank does not move", [](Changed& c, Worker&) { c.lr_factor = 0; }},
      {"the loss is not the mean", [](Changed& c, Worker&) { c.loss_factor = 0.5; }},
      {"the loss is NaN", [](Changed& c, Worker&) { c.loss_factor = NAN; }},
      {"one weight drifts by a millionth",
       [](Changed& c, Worker& w) { c.after_commit = [&w] { nudge(last_parameter(w), 1e-6); }; }},
      {"one weight is NaN",
       [](Changed& c, Worker& w) { c.after_commit = [&w] { nudge(last_parameter(w), NAN); }; }},
      {"a gradient is missing", first_gradient([](Pieces& all) { all[0].values = torch::Tensor(); })},
      {"there are no gradients", first_gradient([](Pieces& all) { all.clear(); })},
      {"a gradient comes too much", first_gradient([](Pieces& all) { all.push_back(all[0]); })},
      {"a gradient is NaN", first_gradient([](Pieces& all) { all[0].values = all[0].values * NAN; })},
      {"a gradient is zero",
       first_gradient([](Pieces& all) { all[1].values = torch::zeros_like(all[1].values); })},
  };
  for (int rank : {0, 1})
    for (const auto& [what, how] : ways)
      EXPECT_GT(broken(two_replicas(), rank, how).largest(), kTolerance) << what << " on rank " << rank;
}

TEST(Verify, FindsEveryWayToBreakStages) {
  const std::pair<const char*, Break> ways[] = {
      {"a stage has another learning rate", [](Changed& c, Worker&) { c.lr_factor = 1.0001; }},
      {"a stage does not move", [](Changed& c, Worker&) { c.lr_factor = 0; }},
      {"a gradient is NaN",
       [](Changed& c, Worker& w) {
         c.after_compute = [&w] {
           for (torch::Tensor& one : w.model.module->parameters())
             if (one.grad().defined()) one.mutable_grad().mul_(NAN);
         };
       }},
      {"gradients are gone",
       [](Changed& c, Worker& w) {
         c.after_compute = [&w] {
           for (torch::Tensor& one : w.model.module->parameters()) one.mutable_grad().reset();
         };
       }},
  };
  for (int rank : {0, 1})
    for (const auto& [what, how] : ways)
      EXPECT_GT(broken(two_stages(), rank, how).largest(), kTolerance) << what << " on stage " << rank;
}

TEST(Verify, FindsEveryWayToBreakWorkersOfServers) {
  const std::pair<const char*, Break> ways[] = {
      {"a gradient counts twice", [](Changed& c, Worker&) { c.weight = 2; }},
      {"a worker trains on other targets", [](Changed& c, Worker&) { c.other_targets = true; }},
      {"one weight drifts by a millionth",
       [](Changed& c, Worker& w) { c.after_commit = [&w] { nudge(last_parameter(w), 1e-6); }; }},
      {"there are no gradients",
       [](Changed& c, Worker&) { c.change_gradients = [](Pieces) { return Pieces(); }; }},
  };
  for (int rank : {0, 1})
    for (const auto& [what, how] : ways)
      EXPECT_GT(broken(two_workers(), rank, how).largest(), kTolerance) << what << " on worker " << rank;
}

TEST(Verify, NeverCallsNumbersEqualThatAreNotFinite) {
  VerifyOptions options = two_replicas();
  options.alone.optimizer.lr = options.parallel.optimizer.lr = 1e30;
  options.type = torch::kFloat32;
  options.steps = 4;
  Verification result = verify(options);
  EXPECT_FALSE(std::isfinite(result.loss.back()));
  EXPECT_EQ(result.worst.largest(), kInfinitelyApart);
}

// Fine-tuning: weight decay must not move them, and they are in the state of every layout.
TEST(Verify, ParametersThatAreNotTrainedStayAndAreSaved) {
  models::register_model("partly_frozen_mlp",
                         [](const models::ModelOptions& given) {
                           models::ModelOptions options = given;
                           options.name = "mlp";
                           models::Model model = models::lay_out(options);
                           model.module->parameters()[0].requires_grad_(false);  // of the first layer
                           model.module->parameters()[3].requires_grad_(false);  // bias of the second
                           return model;
                         },
                         {"sizes"});
  auto check = [](int64_t pipeline, int64_t zero, const char* sync) {
    VerifyOptions options = two_replicas();
    options.alone.model.name = "partly_frozen_mlp";
    options.alone.model.sizes = {784, 8, 8, 10};
    options.alone.optimizer.optimizer = "adamw";
    options.alone.optimizer.weight_decay = 0.1;
    options.parallel = options.alone;
    options.parallel.batch_size = 4;
    options.ranks = static_cast<int>(2 * pipeline);
    options.parallel.parallel.pipeline = pipeline;
    options.parallel.parallel.zero = zero;
    options.parallel.parallel.sync = sync;
    options.parallel.pipeline.microbatches = 2;
    const Differences worst = verify(options).worst;
    EXPECT_LT(std::max({worst.loss, worst.gradient, worst.parameter}), kTolerance)
        << "pipeline " << pipeline << " zero " << zero << " sync " << sync;
  };
  for (int64_t pipeline : {1, 2})
    for (int64_t zero : {0, 1, 2, 3}) check(pipeline, zero, "allreduce");
  for (int64_t pipeline : {1, 2}) check(pipeline, 0, "ps");
}

}  // namespace
}  // namespace yoke::engine
