// Any bytes as an answer of etcd: a value or an error, never a crash.
#include <cstddef>
#include <cstdint>
#include <string>

#include "yoke/base/error.h"
#include "yoke/cluster/etcd.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    yoke::cluster::read_range(yoke::cluster::body_of({reinterpret_cast<const char*>(data), size}));
  } catch (const yoke::Error&) {
  }
  try {
    yoke::cluster::read_range(std::string(reinterpret_cast<const char*>(data), size));
  } catch (const yoke::Error&) {
  }
  return 0;
}
