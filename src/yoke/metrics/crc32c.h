// CRC-32C (Castagnoli), the checksum of TFRecord files.
#pragma once

#include <cstdint>
#include <string_view>

namespace yoke::metrics {

uint32_t crc32c(std::string_view data);

// As stored in TFRecord: rotated and offset, so that checksums of data with embedded checksums stay useful.
uint32_t masked_crc32c(std::string_view data);

}  // namespace yoke::metrics
