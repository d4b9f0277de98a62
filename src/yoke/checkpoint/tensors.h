// Saves tensors to safetensors files and loads them.
#pragma once

#include <torch/types.h>

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "yoke/checkpoint/format/safetensors_writer.h"

namespace yoke::checkpoint {

using NamedTensor = std::pair<std::string, torch::Tensor>;

// Empty for types that safetensors does not have (complex128, quantised ones).
std::optional<format::DType> to_dtype(at::ScalarType type);
at::ScalarType to_scalar_type(format::DType dtype);

// Refers to `tensor`, which must be on the CPU, row-major, and outlive the view. Throws ConfigError for types
// that safetensors does not have.
format::TensorView view_of(const std::string& name, const torch::Tensor& tensor);

// Writes and syncs one file, from any device and layout; an existing file is replaced only once the new one
// is complete. Throws ConfigError.
void save_tensors(const std::filesystem::path& path, const std::vector<NamedTensor>& tensors,
                  const std::map<std::string, std::string>& metadata = {});

struct TensorFile {
  std::vector<NamedTensor> tensors;  // in file order
  std::map<std::string, std::string> metadata;
};

// Maps the file. Its tensors are read-only (writing causes a fault) and keep the mapping alive. Throws
// ConfigError for an invalid file.
TensorFile load_tensors(const std::filesystem::path& path);

// Copies a checkpoint's tensors into existing ones. Strict: same names, types and shapes on both sides.
// `what` is the source, for errors ("runs/a/checkpoints/step-100, optimizer"). Throws CheckpointError that
// names the first difference, before anything is copied.
void restore_into(const std::vector<NamedTensor>& saved, const std::vector<NamedTensor>& own,
                  const std::string& what);

// "float32 [2, 3]".
std::string describe_tensor(const torch::Tensor& tensor);

}  // namespace yoke::checkpoint
