#include "yoke/optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>
#include <utility>
#include <vector>

#include "yoke/base/error.h"
#include "yoke/base/text.h"

namespace yoke::optim {
namespace {

// Inputs of a schedule, after warm-up.
struct Moment {
  double full;      // learning rate without decay
  double progress;  // 0 at the end of warm-up, 1 at the end of the run
  double epoch;
  double warmup_epochs;
};

double constant(const ScheduleOptions&, const Moment& now) {
  return now.full;
}

double linear(const ScheduleOptions& o, const Moment& now) {
  return o.min_lr + (now.full - o.min_lr) * (1 - now.progress);
}

double cosine(const ScheduleOptions& o, const Moment& now) {
  return o.min_lr + (now.full - o.min_lr) * 0.5 * (1 + std::cos(std::numbers::pi * now.progress));
}

// SGDR (Loshchilov & Hutter 2017): a cosine in periods, each `restart_factor` times as long as the last.
double cosine_restarts(const ScheduleOptions& o, const Moment& now) {
  constexpr double kRounding = 1e-9;
  double length = o.restart_epochs, since = now.epoch - now.warmup_epochs + kRounding;
  if (o.restart_factor == 1) {
    since = std::fmod(since, length);
  } else {  // length (factor^n - 1) / (factor - 1) epochs are over when period n begins
    const double grown = since / length * (o.restart_factor - 1) + 1;
    const double period = std::floor(std::log(grown) / std::log(o.restart_factor) + kRounding);
    const double scale = std::pow(o.restart_factor, period);
    since -= length * (scale - 1) / (o.restart_factor - 1);
    length *= scale;
  }
  const double progress = std::clamp(since / length, 0.0, 1.0);
  return o.min_lr + (now.full - o.min_lr) * 0.5 * (1 + std::cos(std::numbers::pi * progress));
}

double steps(const ScheduleOptions& o, const Moment& now) {
  double lr = now.full;
  constexpr double kRounding = 1e-9;  // of steps / steps_per_epoch
  for (double epoch : o.decay_epochs) {
    if (now.epoch + kRounding >= epoch) lr *= o.decay;
  }
  return lr;
}

using Function = double (*)(const ScheduleOptions&, const Moment&);
constexpr std::pair<const char*, Function> kSchedules[] = {{"constant", constant},
                                                           {"cosine", cosine},
                                                           {"cosine_restarts", cosine_restarts},
                                                           {"linear", linear},
                                                           {"step", steps}};

Function find(const std::string& name) {
  std::vector<std::string> names;
  for (const auto& [known, function] : kSchedules) {
    if (name == known) return function;
    names.push_back(known);
  }
  throw ConfigError("train.schedule = \"{}\": unknown schedule. Accepted: {}", name, join(names));
}

int64_t warmup_length(const ScheduleOptions& o, const ScheduleContext& context) {
  auto from_epochs = std::llround(o.warmup_epochs * context.steps_per_epoch);
  return std::max<int64_t>(o.warmup_steps, from_epochs);
}

}  // namespace

double learning_rate(const ScheduleOptions& options, double base_lr, const ScheduleContext& context,
                     int64_t step) {
  YOKE_CHECK(context.steps_per_epoch > 0 && context.replicas > 0 && step >= 0,
             "step {} with {} steps an epoch and {} replicas", step, context.steps_per_epoch,
             context.replicas);
  Function schedule = find(options.schedule);
  if (!(options.restart_epochs > 0))
    throw ConfigError("train.restart_epochs = {}: expected more than 0.", options.restart_epochs);
  auto now = static_cast<double>(step);
  double full = options.scale_lr ? base_lr * static_cast<double>(context.replicas) : base_lr;
  int64_t warmup = warmup_length(options, context);
  if (step < warmup) {
    auto length = static_cast<double>(warmup);
    return options.scale_lr ? base_lr + (full - base_lr) * now / length : full * (now + 1) / length;
  }
  auto rest = static_cast<double>(std::max<int64_t>(1, context.total_steps - warmup));
  double progress = std::min(1.0, static_cast<double>(step - warmup) / rest);
  double epoch =
      context.first_epoch + static_cast<double>(step - context.first_step) / context.steps_per_epoch;
  const double warmup_epochs = static_cast<double>(warmup) / context.steps_per_epoch;
  return schedule(options, {full, progress, epoch, warmup_epochs});
}

}  // namespace yoke::optim
