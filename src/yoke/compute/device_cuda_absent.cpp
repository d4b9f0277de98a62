#include "yoke/base/error.h"
#include "yoke/compute/device_cuda.h"

namespace yoke::compute::cuda {

bool built() {
  return false;
}
int device_count() {
  return 0;
}
bool has_tf32() {
  return false;
}
std::string device_name(int index) {
  YOKE_CHECK(false, "cuda:{} in a build without CUDA", index);
}
DeviceMemory device_memory(int index) {
  YOKE_CHECK(false, "cuda:{} in a build without CUDA", index);
}
int64_t peak_memory_bytes(int index) {
  YOKE_CHECK(false, "cuda:{} in a build without CUDA", index);
}
void reset_peak_memory(int index) {
  YOKE_CHECK(false, "cuda:{} in a build without CUDA", index);
}
int64_t memory_in_use_bytes(int index) {
  YOKE_CHECK(false, "cuda:{} in a build without CUDA", index);
}
MemoryRoom memory_room(int index) {
  YOKE_CHECK(false, "cuda:{} in a build without CUDA", index);
}
void release_freed_memory() {}
void synchronize(int index) {
  YOKE_CHECK(false, "cuda:{} in a build without CUDA", index);
}
std::optional<uint64_t> random_offset_in_capture(int) {
  return std::nullopt;
}

}  // namespace yoke::compute::cuda
