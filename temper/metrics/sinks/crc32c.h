// CRC-32C (Castagnoli), as TFRecord files have it.
#pragma once

#include <cstdint>
#include <string_view>

namespace temper {

uint32_t crc32c(std::string_view bytes);

// TFRecord masks its checksums, so that the checksum of data that holds checksums is no fixed
// point.
uint32_t masked_crc32c(std::string_view bytes);

}  // namespace temper
