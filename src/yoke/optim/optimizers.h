// The factories behind make(), one per file.
#pragma once

#include <memory>
#include <vector>

#include "yoke/optim/optimizer.h"

namespace yoke::optim {

std::unique_ptr<Optimizer> make_sgd(const OptimizerOptions& options, std::vector<NamedTensor> parameters);
std::unique_ptr<Optimizer> make_adamw(const OptimizerOptions& options, std::vector<NamedTensor> parameters);
std::unique_ptr<Optimizer> make_adagrad(const OptimizerOptions& options, std::vector<NamedTensor> parameters);
std::unique_ptr<Optimizer> make_ftrl(const OptimizerOptions& options, std::vector<NamedTensor> parameters);
std::unique_ptr<Optimizer> make_proximal(const OptimizerOptions& options,
                                         std::vector<NamedTensor> parameters);
std::unique_ptr<Optimizer> make_lbfgs(const OptimizerOptions& options, std::vector<NamedTensor> parameters);
std::unique_ptr<Optimizer> make_lars(const OptimizerOptions& options, std::vector<NamedTensor> parameters);
std::unique_ptr<Optimizer> make_lamb(const OptimizerOptions& options, std::vector<NamedTensor> parameters);
std::unique_ptr<Optimizer> make_lion(const OptimizerOptions& options, std::vector<NamedTensor> parameters);
// `optimizer` is of `parameters`, and keeps their moving averages besides (options.ema).
std::unique_ptr<Optimizer> make_averaging(const OptimizerOptions& options,
                                          std::vector<NamedTensor> parameters,
                                          std::unique_ptr<Optimizer> optimizer);
// The optimizer of one that keeps an average, else itself.
Optimizer& without_average(Optimizer& optimizer);

}  // namespace yoke::optim
