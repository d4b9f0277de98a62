// The optimizer part of [train].
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "yoke/config/fields.h"

namespace yoke::optim {

struct OptimizerOptions {
  std::string optimizer = "sgd";
  double lr = 0.05;
  double momentum = 0.9;             // sgd
  bool nesterov = false;             // sgd
  double weight_decay = 0.0;         // decoupled for adamw, L2 for the others
  double beta1 = 0.9;                // adamw
  double beta2 = 0.999;              // adamw
  double eps = 0;                    // adamw, adagrad; 0: PyTorch's default for each (effective_eps)
  double l1 = 0;                     // ftrl, proximal
  double l2 = 0;                     // ftrl, proximal
  double ftrl_beta = 1;              // ftrl
  int64_t history = 10;              // lbfgs
  int64_t inner_steps = 20;          // lbfgs: iterations per step
  std::string line_search = "none";  // lbfgs
  double clip_norm = 0.0;            // 0: no clipping
};

inline void describe(config::Fields& f, OptimizerOptions& o) {
  f.choice(
      "optimizer", o.optimizer, {"sgd", "adamw", "adagrad", "ftrl", "proximal", "lbfgs"},
      "optimizer; ftrl (FTRL-proximal) and proximal (proximal gradient) make sparse weights with train.l1");
  f.number("lr", o.lr, "learning rate, before schedule and scaling");
  f.number("momentum", o.momentum, "sgd: momentum", 0, 0.9999999);
  f.boolean("nesterov", o.nesterov, "sgd: Nesterov momentum");
  f.number("weight_decay", o.weight_decay, "adamw: decoupled weight decay; others: L2 penalty");
  f.number("beta1", o.beta1, "adamw: decay rate of the first moment", 0, 0.9999999);
  f.number("beta2", o.beta2, "adamw: decay rate of the second moment", 0, 0.9999999);
  f.number("eps", o.eps,
           "adamw, adagrad: term added to the denominator; 0: 1e-8 for adamw, 1e-10 for adagrad");
  f.number("l1", o.l1, "ftrl, proximal: L1 penalty, which makes weights exactly 0", 0);
  f.number("l2", o.l2, "ftrl, proximal: L2 penalty", 0);
  f.number("ftrl_beta", o.ftrl_beta, "ftrl: smooths the learning rate of a weight's first steps", 0);
  f.integer("history", o.history, "lbfgs: history size", 1);
  f.integer("inner_steps", o.inner_steps, "lbfgs: maximum iterations per step", 1);
  f.choice("line_search", o.line_search, {"none", "strong_wolfe"},
           "lbfgs: step length of an iteration: the learning rate, or by a search that starts with it");
  f.number("clip_norm", o.clip_norm, "clip the gradient norm to this value; 0: no clipping");
}

inline double effective_eps(const OptimizerOptions& o) {
  if (o.eps > 0) return o.eps;
  return o.optimizer == "adagrad" ? 1e-10 : 1e-8;
}

struct ScheduleOptions {
  std::string schedule = "constant";
  int64_t warmup_steps = 0;
  double warmup_epochs = 0;
  double min_lr = 0.0;                    // cosine
  std::vector<double> decay_epochs = {};  // step
  double decay = 0.1;                     // step
  bool scale_lr = false;                  // linear scaling rule: lr x workers
};

inline void describe(config::Fields& f, ScheduleOptions& o) {
  f.choice("schedule", o.schedule, {"constant", "cosine", "step", "linear"},
           "learning rate schedule after warm-up");
  f.integer("warmup_steps", o.warmup_steps, "steps of linear learning rate warm-up");
  f.number("warmup_epochs", o.warmup_epochs, "warm-up in epochs; the longer of the two is used");
  f.number("min_lr", o.min_lr, "cosine, linear: final learning rate");
  f.numbers("decay_epochs", o.decay_epochs,
            "step: epochs at which the learning rate is multiplied by train.decay");
  f.number("decay", o.decay, "step: factor applied at each of train.decay_epochs", 0, 1);
  f.boolean(
      "scale_lr", o.scale_lr,
      "linear scaling rule: multiply the learning rate by the number of replicas, reached during warm-up");
}

}  // namespace yoke::optim
