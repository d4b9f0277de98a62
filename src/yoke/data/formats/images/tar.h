// Where the files of a tar archive lie. Nothing is ever extracted.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace yoke::data {

struct TarEntry {
  std::string name;  // without a leading "./"
  uint64_t offset = 0, size = 0;
};

// The regular files of an archive in ustar, GNU or pax format, in their order; folders and links are left
// out. Throws ConfigError naming `file` and the byte: a damaged header, an entry beyond the end, compressed
// or sparse files, and names that are absolute or contain "..".
std::vector<TarEntry> index_tar(std::string_view bytes, std::string_view file);

}  // namespace yoke::data
