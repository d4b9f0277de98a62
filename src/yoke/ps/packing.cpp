#include "yoke/ps/packing.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "yoke/base/error.h"
#include "yoke/kernels/compress.h"
#include "yoke/kernels/reduce_half.h"

namespace yoke::ps {
namespace {

using kernels::chunks_of;
using kernels::kQuantumChunk;
using kernels::kSignChunk;

constexpr struct {
  const char* name;
  Encoding encoding;
} kNames[] = {{"none", Encoding::kPlain}, {"fp16", Encoding::kFp16}, {"bf16", Encoding::kBf16},
              {"int8", Encoding::kInt8},  {"sign", Encoding::kSign}, {"topk", Encoding::kTopk}};

template <class Body>
auto with_type(DataType type, Body&& body) {
  return type == DataType::kFloat64 ? body(double{}) : body(float{});
}

template <class T>
const T* values_in(std::span<const std::byte> bytes) {
  return reinterpret_cast<const T*>(bytes.data());
}

template <class T>
T* values_in(std::span<std::byte> bytes) {
  return reinterpret_cast<T*>(bytes.data());
}

int64_t kept_of(const Packing& packing, int64_t count) {
  return std::clamp<int64_t>(static_cast<int64_t>(packing.fraction * static_cast<double>(count)), 1, count);
}

size_t scale_bytes(Encoding encoding, int64_t count) {
  const int64_t chunk = encoding == Encoding::kInt8 ? kQuantumChunk : kSignChunk;
  return static_cast<size_t>(chunks_of(count, chunk)) * sizeof(float);
}

size_t encoded_bytes(const Packing& packing, int64_t count, DataType type) {
  const auto n = static_cast<size_t>(count);
  switch (packing.encoding) {
    case Encoding::kFp16:
    case Encoding::kBf16:
      return 2 * n;
    case Encoding::kInt8:
      return scale_bytes(packing.encoding, count) + n;
    case Encoding::kSign:
      return scale_bytes(packing.encoding, count) + (n + 7) / 8;
    case Encoding::kTopk:
      return static_cast<size_t>(kept_of(packing, count)) * (size_of(type) + sizeof(int32_t));
    default:
      return n * size_of(type);
  }
}

template <class T>
void narrow(Encoding encoding, const T* from, int64_t count, uint16_t* to) {
  for (int64_t i = 0; i < count; ++i) {
    const auto value = static_cast<float>(from[i]);
    to[i] = encoding == Encoding::kFp16 ? kernels::fp16_of_float(value) : kernels::bf16_of_float(value);
    if (encoding == Encoding::kFp16 && std::isfinite(value) && !std::isfinite(kernels::float_of_fp16(to[i])))
      throw ConfigError(
          "a gradient of {} is beyond the range of fp16; nothing was pushed. Use ddp.hook = \"bf16\".",
          value);
  }
}

template <class T>
void keep_largest(const T* from, int64_t count, int64_t kept, std::byte* to) {
  auto* places = reinterpret_cast<int32_t*>(to + static_cast<size_t>(kept) * sizeof(T));
  kernels::largest_magnitudes(from, count, kept, places);
  auto* values = reinterpret_cast<T*>(to);
  for (int64_t i = 0; i < kept; ++i) values[i] = from[places[i]];
}

template <class T>
void encode(const Packing& packing, const T* from, int64_t count, std::byte* to) {
  auto* scales = reinterpret_cast<float*>(to);
  std::byte* rest = to + scale_bytes(packing.encoding, count);
  switch (packing.encoding) {
    case Encoding::kInt8:
      return kernels::quantise(from, count, scales, reinterpret_cast<int8_t*>(rest));
    case Encoding::kSign:
      return kernels::pack_signs(from, count, scales, reinterpret_cast<uint8_t*>(rest));
    case Encoding::kTopk:
      return keep_largest(from, count, kept_of(packing, count), to);
    default:
      return narrow(packing.encoding, from, count, reinterpret_cast<uint16_t*>(to));
  }
}

void check(bool fits, Encoding encoding, size_t bytes, int64_t count) {
  if (!fits)
    throw CommError("{} bytes of encoding {} are not {} values; nothing was applied", bytes,
                    static_cast<int64_t>(encoding), count);
}

template <class T>
void place_largest(std::span<const std::byte> bytes, T* to, int64_t count) {
  const size_t each = sizeof(T) + sizeof(int32_t);
  const auto kept = static_cast<int64_t>(bytes.size() / each);
  check(bytes.size() % each == 0 && kept >= 1 && kept <= count, Encoding::kTopk, bytes.size(), count);
  const T* values = values_in<T>(bytes);
  const auto* places = values_in<int32_t>(bytes.subspan(static_cast<size_t>(kept) * sizeof(T)));
  for (int64_t i = 0; i < kept; ++i)
    if (places[i] < (i == 0 ? 0 : places[i - 1] + int64_t{1}) || places[i] >= count)
      throw CommError("position {} is the {}th of {} in a range of {} values; nothing was applied", places[i],
                      i, kept, count);
  std::fill(to, to + count, T{0});
  for (int64_t i = 0; i < kept; ++i) to[places[i]] = values[i];
}

template <class T>
void decode(Encoding encoding, std::span<const std::byte> bytes, T* to, int64_t count) {
  if (encoding == Encoding::kTopk) return place_largest(bytes, to, count);
  const DataType type = std::is_same_v<T, double> ? DataType::kFloat64 : DataType::kFloat32;
  check(bytes.size() == encoded_bytes({encoding}, count, type), encoding, bytes.size(), count);
  if (encoding == Encoding::kPlain) {
    std::memcpy(to, bytes.data(), bytes.size());
    return;
  }
  if (encoding == Encoding::kFp16 || encoding == Encoding::kBf16) {
    const auto* from = values_in<uint16_t>(bytes);
    for (int64_t i = 0; i < count; ++i)
      to[i] = encoding == Encoding::kFp16 ? kernels::float_of_fp16(from[i]) : kernels::float_of_bf16(from[i]);
    return;
  }
  const auto* scales = values_in<float>(bytes);
  const std::byte* rest = bytes.data() + scale_bytes(encoding, count);
  std::fill(to, to + count, T{0});
  if (encoding == Encoding::kInt8)
    kernels::add_quanta(to, reinterpret_cast<const int8_t*>(rest), scales, count, 1);
  else
    kernels::add_signs(to, reinterpret_cast<const uint8_t*>(rest), scales, count, 1);
}

}  // namespace

bool Packing::feeds_back() const {
  return encoding == Encoding::kInt8 || encoding == Encoding::kSign || encoding == Encoding::kTopk;
}

Packing make_packing(const std::string& name, double fraction) {
  for (const auto& one : kNames)
    if (name == one.name) return {one.encoding, one.encoding == Encoding::kTopk ? fraction : 1};
  throw ConfigError(
      "parameter servers have no encoding \"{}\" of gradients. Accepted: fp16, bf16, int8, sign, topk.",
      name);
}

size_t packed_bytes(const Packing& packing, int64_t count, DataType type) {
  return std::min(encoded_bytes(packing, count, type), static_cast<size_t>(count) * size_of(type));
}

Packed pack(const Packing& packing, std::span<const std::byte> values, DataType type) {
  const auto count = static_cast<int64_t>(values.size() / size_of(type));
  Packed packed;
  if (!packing.active() || count == 0 || encoded_bytes(packing, count, type) >= values.size()) {
    packed.bytes.assign(values.begin(), values.end());
    return packed;
  }
  packed.encoding = packing.encoding;
  packed.bytes.resize(encoded_bytes(packing, count, type));
  with_type(type,
            [&](auto t) { encode(packing, values_in<decltype(t)>(values), count, packed.bytes.data()); });
  return packed;
}

void unpack(Encoding encoding, std::span<const std::byte> bytes, DataType type, std::span<std::byte> values) {
  if (encoding < Encoding::kPlain || encoding > Encoding::kTopk)
    throw CommError("encoding {} of a gradient is unknown; nothing was applied",
                    static_cast<int64_t>(encoding));
  const auto count = static_cast<int64_t>(values.size() / size_of(type));
  with_type(type, [&](auto t) { decode(encoding, bytes, values_in<decltype(t)>(values), count); });
}

}  // namespace yoke::ps
