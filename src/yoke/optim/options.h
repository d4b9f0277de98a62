// The optimizer part of [train].
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "yoke/config/fields.h"
#include "yoke/optim/groups.h"

namespace yoke::optim {

struct OptimizerOptions {
  std::string optimizer = "sgd";
  double lr = 0.05;
  double momentum = 0.9;             // sgd, lars
  bool nesterov = false;             // sgd, lars
  double weight_decay = 0.0;         // decoupled for adamw, lamb and lion, L2 for the others
  bool decay_biases = true;          // false: weight_decay is for parameters of two dimensions or more
  std::string groups;                // of parameters: read_groups()
  double beta1 = 0.9;                // adamw, lamb, lion
  double beta2 = 0.999;              // adamw, lamb, lion
  double eps = 0;                    // adamw, adagrad, lars, lamb; 0: the usual one (effective_eps)
  double trust = 0.001;              // lars
  double l1 = 0;                     // ftrl, proximal
  double l2 = 0;                     // ftrl, proximal
  double ftrl_beta = 1;              // ftrl
  int64_t history = 10;              // lbfgs
  int64_t inner_steps = 20;          // lbfgs: iterations per step
  std::string line_search = "none";  // lbfgs
  double clip_norm = 0.0;            // 0: no clipping
  double ema = 0;                    // decay of the moving average of the weights; 0: none
  // What `groups` and `decay_biases` mean for each parameter of the model, by name: with_settings()
  std::map<std::string, ParameterSettings> settings{};
};

inline void describe(config::Fields& f, OptimizerOptions& o) {
  f.choice(
      "optimizer", o.optimizer,
      {"sgd", "adamw", "adagrad", "ftrl", "proximal", "lbfgs", "lars", "lamb", "lion"},
      "optimizer; ftrl (FTRL-proximal) and proximal (proximal gradient) make sparse weights with train.l1; "
      "lars and lamb scale the step of each layer, for large batches");
  f.number("lr", o.lr, "learning rate, before schedule and scaling");
  f.number("momentum", o.momentum, "sgd, lars: momentum", 0, 0.9999999);
  f.boolean("nesterov", o.nesterov, "sgd, lars: Nesterov momentum");
  f.number("weight_decay", o.weight_decay, "adamw, lamb, lion: decoupled weight decay; others: L2 penalty");
  f.boolean("decay_biases", o.decay_biases,
            "false: no weight decay for biases and norms (parameters of fewer than two dimensions)");
  f.checked_text("groups", o.groups,
                 "parameters by name: [{match = \"*.bias\", lr = 2, weight_decay = 0, freeze = false}]; lr "
                 "multiplies the learning rate, the first match counts",
                 check_groups);
  f.number("beta1", o.beta1,
           "adamw, lamb: decay rate of the first moment; lion: weight of the momentum in a step", 0,
           0.9999999);
  f.number("beta2", o.beta2, "adamw, lamb: decay rate of the second moment; lion: of the momentum", 0,
           0.9999999);
  f.number("eps", o.eps,
           "adamw, adagrad, lars, lamb: term added to the denominator; 0: 1e-10 for adagrad, 1e-6 for lamb, "
           "1e-8 for the others");
  f.number("trust", o.trust, "lars: trust coefficient, the length of a layer's step relative to its weights");
  f.number("l1", o.l1, "ftrl, proximal: L1 penalty, which makes weights exactly 0", 0);
  f.number("l2", o.l2, "ftrl, proximal: L2 penalty", 0);
  f.number("ftrl_beta", o.ftrl_beta, "ftrl: smooths the learning rate of a weight's first steps", 0);
  f.integer("history", o.history, "lbfgs: history size", 1);
  f.integer("inner_steps", o.inner_steps, "lbfgs: maximum iterations per step", 1);
  f.choice("line_search", o.line_search, {"none", "strong_wolfe"},
           "lbfgs: step length of an iteration: the learning rate, or by a search that starts with it");
  f.number("clip_norm", o.clip_norm, "clip the gradient norm to this value; 0: no clipping");
  f.number("ema", o.ema,
           "decay of an exponential moving average of the weights, which is evaluated and exported; 0: none",
           0, 0.9999999);
}

inline double effective_eps(const OptimizerOptions& o) {
  if (o.eps > 0) return o.eps;
  if (o.optimizer == "lamb") return 1e-6;
  return o.optimizer == "adagrad" ? 1e-10 : 1e-8;
}

struct ScheduleOptions {
  std::string schedule = "constant";
  int64_t warmup_steps = 0;
  double warmup_epochs = 0;
  double min_lr = 0.0;                    // cosine, cosine_restarts, linear
  std::vector<double> decay_epochs = {};  // step
  double decay = 0.1;                     // step
  double restart_epochs = 10;             // cosine_restarts: length of the first period
  double restart_factor = 2;              // cosine_restarts: of a period relative to the one before
  bool scale_lr = false;                  // linear scaling rule: lr x workers
};

inline void describe(config::Fields& f, ScheduleOptions& o) {
  f.choice("schedule", o.schedule, {"constant", "cosine", "cosine_restarts", "step", "linear"},
           "learning rate schedule after warm-up");
  f.integer("warmup_steps", o.warmup_steps, "steps of linear learning rate warm-up");
  f.number("warmup_epochs", o.warmup_epochs, "warm-up in epochs; the longer of the two is used");
  f.number("min_lr", o.min_lr,
           "cosine, linear: final learning rate; cosine_restarts: at the end of each period");
  f.numbers("decay_epochs", o.decay_epochs,
            "step: epochs at which the learning rate is multiplied by train.decay");
  f.number("decay", o.decay, "step: factor applied at each of train.decay_epochs", 0, 1);
  f.number("restart_epochs", o.restart_epochs, "cosine_restarts: epochs of the first period, after warm-up");
  f.number("restart_factor", o.restart_factor,
           "cosine_restarts: length of a period relative to the one before", 1);
  f.boolean(
      "scale_lr", o.scale_lr,
      "linear scaling rule: multiply the learning rate by the number of replicas, reached during warm-up");
}

}  // namespace yoke::optim
