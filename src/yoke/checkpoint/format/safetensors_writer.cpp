#include "yoke/checkpoint/format/safetensors_writer.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "yoke/base/error.h"
#include "yoke/checkpoint/format/safetensors.h"

namespace yoke::checkpoint::format {
namespace {

constexpr uint64_t kLarge = uint64_t{4} << 20;

void check_tensors(const std::vector<TensorView>& tensors) {
  for (const TensorView& t : tensors) {
    uint64_t count = 0;
    YOKE_CHECK(t.name != "__metadata__" && t.name.size() <= kMaxNameBytes, "a tensor cannot be named \"{}\"",
               t.name);
    YOKE_CHECK(t.shape.size() <= kMaxDims, "tensor \"{}\" has {} dimensions", t.name, t.shape.size());
    YOKE_CHECK(element_count(t.shape, &count) && count * size_of(t.dtype) == t.bytes,
               "tensor \"{}\": {} bytes do not fit its shape and dtype {}", t.name, t.bytes,
               name_of(t.dtype));
  }
}

// Length and JSON at the start of the file.
std::string make_header(const std::vector<TensorView>& tensors, size_t alignment,
                        const std::map<std::string, std::string>& metadata) {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  // Filled directly, because ordered_json searches all keys for each new one; the caller detects duplicates.
  auto& list = json.get_ref<nlohmann::ordered_json::object_t&>();
  if (!metadata.empty()) list.emplace_back("__metadata__", nlohmann::ordered_json(metadata));
  uint64_t at = 0;
  for (const TensorView& t : tensors) {
    nlohmann::ordered_json entry;
    entry["dtype"] = name_of(t.dtype);
    entry["shape"] = t.shape;
    entry["data_offsets"] = {at, at + t.bytes};
    list.emplace_back(t.name, std::move(entry));
    at += t.bytes;
  }
  std::string text = json.dump();
  text.resize((8 + text.size() + alignment - 1) / alignment * alignment - 8, ' ');
  YOKE_CHECK(text.size() <= kMaxHeaderBytes, "safetensors header of {} bytes", text.size());
  std::string header(8, '\0');
  for (size_t i = 0; i < 8; ++i) header[i] = static_cast<char>(text.size() >> (8 * i));
  return header + text;
}

// Adjacent tensors in memory are written as one piece.
void write_data(DurableFile& file, const std::vector<TensorView>& tensors) {
  const char* begin = nullptr;
  uint64_t bytes = 0;
  for (const TensorView& t : tensors) {
    if (bytes > 0 && begin + bytes != t.data) {
      file.write(begin, bytes);
      bytes = 0;
    }
    if (bytes == 0) begin = static_cast<const char*>(t.data);
    bytes += t.bytes;
  }
  if (bytes > 0) file.write(begin, bytes);
}

}  // namespace

bool comes_before(uint64_t element_bytes, std::string_view name, uint64_t other_element_bytes,
                  std::string_view other_name) {
  return element_bytes != other_element_bytes ? element_bytes > other_element_bytes : name < other_name;
}

WrittenFile write_safetensors(const std::filesystem::path& path, std::vector<TensorView> tensors,
                              const std::map<std::string, std::string>& metadata, const Failpoint& failpoint,
                              const Readiness& ready) {
  check_tensors(tensors);
  std::ranges::sort(tensors, [](const TensorView& a, const TensorView& b) {
    return comes_before(size_of(a.dtype), a.name, size_of(b.dtype), b.name);
  });
  uint64_t total = 0;
  for (const TensorView& t : tensors) total += t.bytes;
  std::string header = make_header(tensors, total < kLarge ? 8 : 4096, metadata);
  // We do not write what we would not read: this also detects duplicate names.
  parse_header(header, header.size() + total, path.string());

  // The header is our own memory, and ready.
  const char* own = header.data();
  Readiness asked = [&](const void* end) {
    bool in_header = end > own && end <= own + header.size();
    if (ready && !in_header) ready(end);
  };
  DurableFile file(path, header.size() + total, failpoint, asked);
  file.write(header.data(), header.size());
  write_data(file, tensors);
  file.sync();
  return {file.bytes(), file.digest()};
}

}  // namespace yoke::checkpoint::format
