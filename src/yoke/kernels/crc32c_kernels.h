// The compiled CRC32C implementations: crc32c() uses the fastest this CPU supports, tests and benchmarks use
// all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace yoke::kernels {

struct Crc32cKernel {
  const char* name;
  bool (*available)();  // on this processor
  // The raw register: crc32c() inverts it before and after.
  uint32_t (*sum)(const uint8_t* data, size_t bytes, uint32_t crc);
};

// Fastest first. The last, the reference, is available everywhere.
std::span<const Crc32cKernel> crc32c_kernels();

namespace crc {

// For the bytes that remain after the block-wise implementations.
uint32_t by_table(const uint8_t* data, size_t bytes, uint32_t crc);

// The CPU's instruction on three streams.
bool has_instruction();
uint32_t by_instruction(const uint8_t* data, size_t bytes, uint32_t crc);
uint32_t copy_by_instruction(uint8_t* to, const uint8_t* data, size_t bytes, uint32_t crc);

// Combined with carry-less multiplication: two execution units share the work.
bool has_folding();
uint32_t by_folding(const uint8_t* data, size_t bytes, uint32_t crc);

// Carry-less multiplication of vectors of 64 bytes.
bool has_wide_folding();
uint32_t by_wide_folding(const uint8_t* data, size_t bytes, uint32_t crc);

}  // namespace crc
}  // namespace yoke::kernels
