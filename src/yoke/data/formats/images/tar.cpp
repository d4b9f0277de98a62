#include "yoke/data/formats/images/tar.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include "yoke/base/error.h"

namespace yoke::data {
namespace {

using namespace std::string_view_literals;

constexpr size_t kBlock = 512;

// Up to the first zero byte.
std::string_view text_of(std::string_view field) {
  return field.substr(0, field.find('\0'));
}

class Tar {
 public:
  Tar(std::string_view bytes, std::string_view file) : bytes_(bytes), file_(file) {}

  std::vector<TarEntry> entries() {
    if (bytes_.starts_with("\x1F\x8B"sv) || bytes_.starts_with("\x28\xB5\x2F\xFD"sv) ||
        bytes_.starts_with("BZh"))
      throw ConfigError("{}: a compressed archive cannot be read at random; unpack it to a plain .tar.",
                        file_);
    while (at_ < bytes_.size()) {
      const std::string_view header = take_header();
      if (std::all_of(header.begin(), header.end(), [](char c) { return c == '\0'; })) break;  // its end
      check_sum(header);
      take_entry(header);
    }
    return std::move(entries_);
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw ConfigError("{}, byte {}: {}. Make the archive again, or remove it.", file_, start_, what);
  }

  std::string_view take_header() {
    start_ = at_;
    if (bytes_.size() - at_ < kBlock) fail("the archive ends within a header");
    at_ += kBlock;
    return bytes_.substr(start_, kBlock);
  }

  void check_sum(std::string_view header) const {
    uint64_t sum = 8 * ' ';  // the checksum's own field counts as blanks
    for (size_t i = 0; i < kBlock; ++i)
      if (i < 148 || i >= 156) sum += static_cast<unsigned char>(header[i]);
    if (octal(header.substr(148, 8)) != sum) fail("not a tar header: its checksum is wrong");
  }

  uint64_t octal(std::string_view field) const {
    std::string_view digits = text_of(field);
    while (digits.starts_with(' ')) digits.remove_prefix(1);
    while (digits.ends_with(' ')) digits.remove_suffix(1);
    uint64_t value = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value, 8);
    if (!digits.empty() && (error != std::errc() || end != digits.data() + digits.size()))
      fail("a number in a header is not octal");
    return value;
  }

  // GNU: from 8 GB on a size is binary, with the highest bit set.
  uint64_t size_of(std::string_view header) const {
    const std::string_view field = header.substr(124, 12);
    if ((static_cast<unsigned char>(field[0]) & 0x80) == 0) return octal(field);
    uint64_t value = 0;
    for (char c : field.substr(4)) value = value << 8 | static_cast<unsigned char>(c);
    return value;
  }

  std::string name_of(std::string_view header) {
    if (long_name_) return *std::exchange(long_name_, std::nullopt);
    const std::string name(text_of(header.substr(0, 100)));
    const std::string_view prefix =
        header.substr(257, 6) == "ustar\0"sv ? text_of(header.substr(345, 155)) : ""sv;
    return prefix.empty() ? name : std::string(prefix) + "/" + name;
  }

  void take_entry(std::string_view header) {
    const char kind = header[156];
    uint64_t size = size_of(header);
    const bool describes = kind == 'x' || kind == 'g' || kind == 'L' || kind == 'K';
    if (long_size_ && !describes) size = *std::exchange(long_size_, std::nullopt);
    if (size > bytes_.size() - at_)
      fail(fmt::format("an entry of {} bytes, but the archive ends after {}", size, bytes_.size() - at_));
    const std::string_view content = bytes_.substr(at_, size);
    if (kind == 'L') long_name_ = std::string(text_of(content));
    if (kind == 'x') read_pax(content);
    if (kind == 'S') fail("a sparse file");
    if (!describes) {
      std::string name = name_of(header);
      const bool regular = kind == '0' || kind == '\0' || kind == '7';
      if (regular && !name.ends_with('/')) entries_.push_back({checked(std::move(name)), at_, size});
    }
    at_ += std::min(bytes_.size() - at_, (size + kBlock - 1) / kBlock * kBlock);
  }

  // Records "LENGTH KEY=VALUE\n".
  void read_pax(std::string_view records) {
    while (!records.empty()) {
      size_t length = 0;
      const auto [end, error] = std::from_chars(records.data(), records.data() + records.size(), length);
      const size_t digits = static_cast<size_t>(end - records.data());
      if (error != std::errc() || length < digits + 2 || length > records.size())
        fail("a damaged pax header");
      std::string_view record = records.substr(digits + 1, length - digits - 2);
      records.remove_prefix(length);
      if (record.starts_with("path=")) long_name_ = std::string(record.substr(5));
      if (record.starts_with("GNU.sparse.")) fail("a sparse file");
      if (record.starts_with("size=")) {
        uint64_t size = 0;
        std::from_chars(record.data() + 5, record.data() + record.size(), size);
        long_size_ = size;
      }
    }
  }

  std::string checked(std::string name) const {
    while (name.starts_with("./")) name.erase(0, 2);
    const std::string framed = "/" + name + "/";
    if (name.empty() || name[0] == '/' || framed.find("/../") != std::string::npos)
      fail(fmt::format("an entry named \"{}\", which would lie outside the archive's folder", name));
    return name;
  }

  std::string_view bytes_, file_;
  size_t at_ = 0, start_ = 0;
  std::optional<std::string> long_name_;
  std::optional<uint64_t> long_size_;
  std::vector<TarEntry> entries_;
};

}  // namespace

std::vector<TarEntry> index_tar(std::string_view bytes, std::string_view file) {
  return Tar(bytes, file).entries();
}

}  // namespace yoke::data
