#include "yoke/base/cpu.h"
#include "yoke/compute/device.h"
#include "yoke/compute/device_cuda.h"

namespace yoke::compute {

std::string device_name(const torch::Device& device) {
  return device.is_cuda() ? cuda::device_name(device.index()) : cpu_name();
}

}  // namespace yoke::compute
