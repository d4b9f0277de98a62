// The part of [train] that says how parameters move.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "yoke/config/fields.h"

namespace yoke::optim {

struct OptimizerOptions {
  std::string optimizer = "sgd";
  double lr = 0.05;
  double momentum = 0.9;      // sgd
  bool nesterov = false;      // sgd
  double weight_decay = 0.0;  // decoupled for adamw, L2 for the others
  double beta1 = 0.9;         // adamw
  double beta2 = 0.999;       // adamw
  double eps = 0;             // adamw, adagrad; 0: PyTorch's default for each (effective_eps)
  int64_t history = 10;       // lbfgs
  int64_t inner_steps = 20;   // lbfgs: iterations of one step
  double clip_norm = 0.0;     // 0: no clipping
};

inline void describe(config::Fields& f, OptimizerOptions& o) {
  f.choice("optimizer", o.optimizer, {"sgd", "adamw", "adagrad", "lbfgs"}, "how parameters are updated");
  f.number("lr", o.lr, "learning rate, before schedule and scaling rule");
  f.number("momentum", o.momentum, "sgd: momentum", 0, 0.9999999);
  f.boolean("nesterov", o.nesterov, "sgd: Nesterov's form of momentum");
  f.number("weight_decay", o.weight_decay, "adamw: decoupled weight decay; others: L2 term of the gradient");
  f.number("beta1", o.beta1, "adamw: decay of the mean of gradients", 0, 0.9999999);
  f.number("beta2", o.beta2, "adamw: decay of the mean of squared gradients", 0, 0.9999999);
  f.number("eps", o.eps,
           "adamw, adagrad: added to the root in the denominator; 0 is 1e-8 for adamw and 1e-10 for adagrad");
  f.integer("history", o.history, "lbfgs: number of remembered steps", 1);
  f.integer("inner_steps", o.inner_steps, "lbfgs: most iterations within one step", 1);
  f.number("clip_norm", o.clip_norm, "scale gradients down to this total norm; 0 does not clip");
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
           "how the learning rate changes after warm-up");
  f.integer("warmup_steps", o.warmup_steps, "steps over which the learning rate rises linearly");
  f.number("warmup_epochs", o.warmup_epochs, "the same in epochs; the longer of the two counts");
  f.number("min_lr", o.min_lr, "cosine, linear: where the learning rate ends");
  f.numbers("decay_epochs", o.decay_epochs,
            "step: epochs at which the learning rate is multiplied by train.decay");
  f.number("decay", o.decay, "step: the factor at each of train.decay_epochs", 0, 1);
  f.boolean(
      "scale_lr", o.scale_lr,
      "linear scaling rule: multiply the learning rate by the number of replicas, rising during warm-up");
}

}  // namespace yoke::optim
