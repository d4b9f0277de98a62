// CRC-32C (Castagnoli), the checksum of TFRecord files.
#pragma once

#include <cstdint>
#include <string_view>

namespace yoke::metrics {

uint32_t crc32c(std::string_view data);

// As TFRecord stores it: rotated and shifted, so that a checksum of data that holds checksums stays useful.
uint32_t masked_crc32c(std::string_view data);

}  // namespace yoke::metrics
