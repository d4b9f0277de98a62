// Which way a convolution is computed on the CPU, chosen by measuring and then kept.
//
// The fastest way differs between layers, batch sizes, thread counts and machines, and the ways round
// differently. So a choice is made once, on the real shapes, and stored: in a file, so that the next run on
// this machine takes the same way and gives the same bits, and as JSON, so that a checkpoint can carry it.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include <filesystem>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace yoke::compute {

enum class ConvPath {
  kOneDnn,        // what LibTorch chooses: oneDNN for most shapes
  kNative,        // LibTorch's own: patches and a matrix product, image by image
  kChannelsLast,  // ours: patches of the whole batch and one matrix product, channels last
  kDirect,        // ours: no patches, for few channels at stride 1
};

std::string to_string(ConvPath path);
std::optional<ConvPath> parse_conv_path(const std::string& name);

// The choices of this process. Thread-safe.
class ConvChoices {
 public:
  // Runs one way once; called several times, and timed.
  using Runner = std::function<void(ConvPath)>;

  static ConvChoices& global();

  // train.conv: "auto" measures, another name forces that way where it can compute the layer. Throws
  // ConfigError.
  void set_mode(const std::string& mode);

  // Takes the choices of `file` (which may not exist yet) and writes new ones there. Processes that measure
  // at the same time wait for each other (a lock beside the file) and so end with the same choices. A file
  // that is damaged or cannot be read, locked or written costs repeatability between runs, not the run: it is
  // warned of once and written anew where possible.
  void use_file(const std::filesystem::path& file);

  // The way for `operation` among `candidates`, the first of which is the default: imported or known, else
  // measured. Another way than the default must be at least 5 % faster.
  ConvPath choose(const std::string& operation, const std::vector<ConvPath>& candidates, const Runner& run);

  // All choices, and taking such a document over: what is imported wins over what is known. Throws
  // ConfigError.
  nlohmann::json to_json() const;
  void import_json(const nlohmann::json& document);

  void clear();

 private:
  struct Choice {
    ConvPath path;
    bool imported = false;
  };

  std::optional<ConvPath> known(const std::string& key, const std::vector<ConvPath>& candidates) const;
  nlohmann::json to_json_locked() const;
  void merge_locked(const nlohmann::json& document, bool imported, const std::string& where);
  void merge_file_locked();
  void warn_once_locked(const std::string& problem);

  mutable std::mutex mutex_;
  std::optional<ConvPath> forced_;
  std::filesystem::path file_;
  bool warned_ = false;
  std::map<std::string, Choice> choices_;
};

// "torch 2.10.0, Intel(R) Xeon(R) …": choices hold for one such machine.
const std::string& machine_name();

}  // namespace yoke::compute
