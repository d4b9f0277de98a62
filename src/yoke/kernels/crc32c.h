// CRC32C (Castagnoli), with the CPU's instruction if available, several streams at a time.
#pragma once

#include <cstddef>
#include <cstdint>

namespace yoke::kernels {

// Continues `crc` (0 at the start) over `bytes` bytes. crc32c("123456789") = 0xE3069283.
uint32_t crc32c(const void* data, size_t bytes, uint32_t crc = 0);

// Copies and computes the checksum in one pass.
uint32_t copy_crc32c(void* to, const void* from, size_t bytes, uint32_t crc = 0);

namespace reference {
uint32_t crc32c(const void* data, size_t bytes, uint32_t crc = 0);
}

}  // namespace yoke::kernels
