// What a whole training computes and how long that takes: steps, operations, and the time on this device (at
// a measured speed) and on known ones (at a share of their published peaks).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace yoke::cli {

struct TrainingSize {
  int64_t samples = 0;  // of the training set
  double epochs = 1;
  int64_t steps = 0;     // instead of `epochs`; 0: as many as they need
  int64_t batch = 1;     // of a replica
  int64_t replicas = 1;  // each on a device of its own
  int64_t accumulate = 1;
  bool drop_last = true;
  double flops_per_sample = 0;  // forward and backward; 0: not known
};

struct DeviceTime {
  std::string device;
  int year = 0;
  double peak = 0;     // operations per second, published
  double seconds = 0;  // of the whole training, on `replicas` such devices, without communication
};

struct TrainingEstimate {
  int64_t steps = 0;
  double epochs = 0;
  double samples = 0;  // processed
  double flops = 0;
  double pflop_days = 0;
  double seconds_here = 0;  // on as many devices as this one; 0: not measured
  std::vector<DeviceTime> devices;
};

// `samples_per_s`: measured on this device, 0: not. `utilisation`: share of the peak that training reaches.
// `names`: of lab_devices.h; the times are empty without flops_per_sample. Throws ConfigError for an unknown
// name and for a batch that the training set does not fill.
TrainingEstimate estimate_training(const TrainingSize& size, double samples_per_s, double utilisation,
                                   const std::vector<std::string>& names);

}  // namespace yoke::cli
