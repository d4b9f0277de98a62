// Published figures of known devices, for predictions.
#pragma once

#include <string>
#include <vector>

namespace yoke::cli {

// Of one GPU (half a board for K80 and M60), dense, without sparsity.
struct KnownDevice {
  const char* name;
  int year;
  double fp32;         // operations per second outside tensor cores
  double training;     // in fp16 or bf16 on tensor cores where there are some, fp32 otherwise
  double bandwidth;    // of its memory, bytes per second
  double memory;       // bytes
  bool half_training;  // `training` is of 16-bit numbers
};

const std::vector<KnownDevice>& known_devices();

// Throws ConfigError, listing the names.
const KnownDevice& known_device(const std::string& option, const std::string& name);

}  // namespace yoke::cli
