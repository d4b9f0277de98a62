// TensorBoard's event files, encoded by hand: five protobuf fields need no protobuf library (and LibTorch
// contains one, with which a second one would clash).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace yoke::metrics {

struct Scalar {
  std::string tag;
  float value;
};

// Event messages (tensorflow/core/util/event.proto), unframed. Times are seconds since 1970.
std::string encode_version_event(double wall_time);
// Tells readers to discard what earlier files contain for `step` and later steps.
std::string encode_restart_event(double wall_time, int64_t step);
std::string encode_scalar_event(double wall_time, int64_t step, const std::vector<Scalar>& scalars);

// A TFRecord: length, checksum of the length, payload, checksum of the payload; little-endian.
std::string frame_event(std::string_view payload);

}  // namespace yoke::metrics
