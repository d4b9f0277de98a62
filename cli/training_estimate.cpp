#include "cli/training_estimate.h"

#include <cmath>

#include "cli/lab_devices.h"
#include "yoke/base/error.h"
#include "yoke/metrics/summary.h"

namespace yoke::cli {
namespace {

double batches_per_epoch(const TrainingSize& size) {
  const int64_t global = size.batch * size.replicas;
  const int64_t batches = size.samples / global + (size.samples % global > 0 && !size.drop_last ? 1 : 0);
  if (batches > 0) return static_cast<double>(batches);
  throw ConfigError(
      "a batch of {} on {} replicas needs {} samples, but the training set has {}. Lower data.batch_size or "
      "--replicas.",
      size.batch, size.replicas, global, size.samples);
}

}  // namespace

TrainingEstimate estimate_training(const TrainingSize& size, double samples_per_s, double utilisation,
                                   const std::vector<std::string>& names) {
  const double batches = batches_per_epoch(size), accumulate = static_cast<double>(size.accumulate);
  const double of_epoch = size.drop_last ? batches * static_cast<double>(size.batch * size.replicas)
                                         : static_cast<double>(size.samples);
  TrainingEstimate out;
  out.steps =
      size.steps > 0 ? size.steps : static_cast<int64_t>(std::ceil(size.epochs * batches / accumulate));
  out.epochs = size.steps > 0 ? static_cast<double>(size.steps) * accumulate / batches : size.epochs;
  out.samples = out.epochs * of_epoch;
  out.flops = out.samples * size.flops_per_sample;
  out.pflop_days = metrics::pflop_days(out.flops);
  const auto replicas = static_cast<double>(size.replicas);
  if (samples_per_s > 0) out.seconds_here = out.samples / (samples_per_s * replicas);
  for (const std::string& name : names) {
    const KnownDevice& device = known_device("--devices", name);
    if (out.flops <= 0) continue;
    out.devices.push_back(
        {device.name, device.year, device.training, out.flops / (device.training * utilisation * replicas)});
  }
  return out;
}

}  // namespace yoke::cli
