#include "yoke/checkpoint/tensors.h"

#include <ATen/ATen.h>

#include <array>
#include <cstring>
#include <memory>
#include <unordered_map>

#include "yoke/base/error.h"
#include "yoke/base/file.h"
#include "yoke/checkpoint/format/safetensors.h"

namespace yoke::checkpoint {
namespace {

using format::DType;

struct Pair {
  DType dtype;
  at::ScalarType scalar;
};

// In the order of DType.
constexpr std::array kTypes{
    Pair{DType::kBool, at::kBool},
    Pair{DType::kU8, at::kByte},
    Pair{DType::kI8, at::kChar},
    Pair{DType::kF8E4M3, at::kFloat8_e4m3fn},
    Pair{DType::kF8E5M2, at::kFloat8_e5m2},
    Pair{DType::kF8E8M0, at::kFloat8_e8m0fnu},
    Pair{DType::kF8E4M3Fnuz, at::kFloat8_e4m3fnuz},
    Pair{DType::kF8E5M2Fnuz, at::kFloat8_e5m2fnuz},
    Pair{DType::kI16, at::kShort},
    Pair{DType::kU16, at::kUInt16},
    Pair{DType::kF16, at::kHalf},
    Pair{DType::kBF16, at::kBFloat16},
    Pair{DType::kI32, at::kInt},
    Pair{DType::kU32, at::kUInt32},
    Pair{DType::kF32, at::kFloat},
    Pair{DType::kC64, at::kComplexFloat},
    Pair{DType::kF64, at::kDouble},
    Pair{DType::kI64, at::kLong},
    Pair{DType::kU64, at::kUInt64},
};

torch::Tensor map_tensor(const std::shared_ptr<MappedFile>& file, const format::TensorEntry& entry,
                         uint64_t data_offset) {
  auto options = at::TensorOptions().dtype(to_scalar_type(entry.dtype));
  if (entry.begin == entry.end) return at::empty(entry.shape, options);
  const std::byte* data = file->data() + data_offset + entry.begin;
  // Other writers need not align; kernels require it.
  if (reinterpret_cast<uintptr_t>(data) % format::size_of(entry.dtype) != 0) {
    torch::Tensor copy = at::empty(entry.shape, options);
    std::memcpy(copy.data_ptr(), data, entry.end - entry.begin);
    return copy;
  }
  return at::from_blob(
      const_cast<std::byte*>(data), entry.shape, [file](void*) {}, options);
}

std::string first_difference(const std::unordered_map<std::string, torch::Tensor>& saved,
                             const std::vector<NamedTensor>& own) {
  for (const auto& [name, tensor] : own) {
    auto found = saved.find(name);
    if (found == saved.end()) return fmt::format("\"{}\" is not in it", name);
    if (found->second.sizes() != tensor.sizes() || found->second.scalar_type() != tensor.scalar_type()) {
      return fmt::format("\"{}\" is {} in the file and {} in this run", name, describe_tensor(found->second),
                         describe_tensor(tensor));
    }
  }
  return "";
}

std::string first_surplus(const std::vector<NamedTensor>& saved, const std::vector<NamedTensor>& own) {
  std::unordered_map<std::string, torch::Tensor> by_name(own.begin(), own.end());
  for (const auto& [name, tensor] : saved)
    if (!by_name.contains(name)) return fmt::format("it contains \"{}\", which is not in this run", name);
  return "";
}

}  // namespace

std::optional<DType> to_dtype(at::ScalarType type) {
  for (const Pair& pair : kTypes)
    if (pair.scalar == type) return pair.dtype;
  return std::nullopt;
}

at::ScalarType to_scalar_type(DType dtype) {
  const Pair& pair = kTypes.at(static_cast<size_t>(dtype));
  YOKE_CHECK(pair.dtype == dtype, "table of dtypes out of order at {}", format::name_of(dtype));
  return pair.scalar;
}

std::string describe_tensor(const torch::Tensor& tensor) {
  std::string shape;
  for (int64_t dim : tensor.sizes()) shape += fmt::format("{}{}", shape.empty() ? "" : ", ", dim);
  return fmt::format("{} [{}]", at::toString(tensor.scalar_type()), shape);
}

format::TensorView view_of(const std::string& name, const torch::Tensor& tensor) {
  auto dtype = to_dtype(tensor.scalar_type());
  if (!dtype) {
    throw ConfigError("tensor \"{}\" of type {} cannot be saved: safetensors has no such type.", name,
                      at::toString(tensor.scalar_type()));
  }
  YOKE_CHECK(tensor.is_cpu() && tensor.is_contiguous(), "tensor \"{}\" is not row-major memory of the CPU",
             name);
  return {name, *dtype, tensor.sizes().vec(), tensor.const_data_ptr(), tensor.nbytes()};
}

void save_tensors(const std::filesystem::path& path, const std::vector<NamedTensor>& tensors,
                  const std::map<std::string, std::string>& metadata) {
  std::vector<torch::Tensor> alive;
  std::vector<format::TensorView> views;
  for (const auto& [name, tensor] : tensors) {
    alive.push_back(tensor.detach().cpu().contiguous());
    views.push_back(view_of(name, alive.back()));
  }
  std::filesystem::path temporary = path;
  temporary += ".tmp";
  std::error_code error;
  try {
    format::write_safetensors(temporary, std::move(views), metadata);
  } catch (const Error&) {
    std::filesystem::remove(temporary, error);
    throw;
  }
  std::filesystem::rename(temporary, path, error);
  if (error) format::fail_on_disk("cannot write", path, error.value());
}

TensorFile load_tensors(const std::filesystem::path& path) {
  auto file = std::make_shared<MappedFile>(path);
  format::SafetensorsHeader header = format::parse_header(file->view(), file->size(), path.string());
  TensorFile result;
  result.metadata = std::move(header.metadata);
  for (const format::TensorEntry& entry : header.tensors) {
    result.tensors.emplace_back(entry.name, map_tensor(file, entry, header.data_offset));
  }
  return result;
}

void restore_into(const std::vector<NamedTensor>& saved, const std::vector<NamedTensor>& own,
                  const std::string& what) {
  std::unordered_map<std::string, torch::Tensor> by_name(saved.begin(), saved.end());
  std::string difference = first_difference(by_name, own);
  if (difference.empty()) difference = first_surplus(saved, own);
  if (!difference.empty()) {
    throw CheckpointError(
        "{}: a checkpoint of another model or optimizer: {}. Resume with the configuration it was saved "
        "with, or set another out.dir.",
        what, difference);
  }
  at::NoGradGuard no_grad;
  for (const auto& [name, tensor] : own) torch::Tensor(tensor).copy_(by_name.at(name));
}

}  // namespace yoke::checkpoint
