// The ways of summing that were compiled in, each for itself: crc32c() takes the quickest this processor has,
// tests and benchmarks take them all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace yoke::kernels {

struct Crc32cKernel {
  const char* name;
  bool (*available)();  // on this processor
  // The register itself goes in and out: crc32c() inverts it before and after.
  uint32_t (*sum)(const uint8_t* data, size_t bytes, uint32_t crc);
};

// Quickest first. The last, the reference, is available everywhere.
std::span<const Crc32cKernel> crc32c_kernels();

namespace crc {

// `bytes` that remain after others have summed as many as they can at a time.
uint32_t by_table(const uint8_t* data, size_t bytes, uint32_t crc);

// The processor's instruction on three streams.
bool has_instruction();
uint32_t by_instruction(const uint8_t* data, size_t bytes, uint32_t crc);
uint32_t copy_by_instruction(uint8_t* to, const uint8_t* data, size_t bytes, uint32_t crc);

// The same beside carry-less multiplication: two units of the processor share the work.
bool has_folding();
uint32_t by_folding(const uint8_t* data, size_t bytes, uint32_t crc);

}  // namespace crc
}  // namespace yoke::kernels
