// The compression filter: values of a message as a zstd frame, where that is shorter. Zeros nearly vanish.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace yoke::ps::sparse {

// Empty: it would not be shorter. Any thread.
std::vector<std::byte> compress(std::span<const std::byte> values);

// Throws CommError unless `from` is a frame of exactly into.size() bytes. Any thread.
void decompress(std::span<const std::byte> from, std::span<std::byte> into);

}  // namespace yoke::ps::sparse
