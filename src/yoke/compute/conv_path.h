// Selects the CPU convolution path by measurement and keeps the choice.
//
// The fastest path differs between layers, batch sizes, thread counts and machines, and the paths round
// differently. So a choice is made once, on the real shapes, and stored: in a file, so that the next run on
// this machine uses the same path and gives the same bits, and as JSON, so that a checkpoint can carry it.
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
  kOneDnn,        // LibTorch's choice: oneDNN for most shapes
  kNative,        // LibTorch's own: patches and a matrix product per image
  kChannelsLast,  // ours: patches of the whole batch and one matrix product, channels last
  kDirect,        // ours: no patches, for few channels at stride 1
};

std::string to_string(ConvPath path);
std::optional<ConvPath> parse_conv_path(const std::string& name);

// A convolution as choices know it: "forward 32x3x28x28 planes weight 16x3x5x5 …".
struct ConvOperation {
  std::string what;
  int64_t batch = 0;
  std::string layer;  // all else: "3x28x28 planes weight 16x3x5x5 …"
  std::string text() const;
};

// The choices of this process. Thread-safe.
class ConvChoices {
 public:
  // Runs one path once; called several times and timed.
  using Runner = std::function<void(ConvPath)>;

  using Clock = std::function<double()>;  // seconds
  ConvChoices();
  explicit ConvChoices(Clock clock) : clock_(std::move(clock)) {}
  static ConvChoices& global();

  // train.conv: "auto" measures, another name forces that path where it supports the layer. Throws
  // ConfigError.
  void set_mode(const std::string& mode);

  // Loads the choices of `file` (which need not exist) and writes new ones there. Processes that measure
  // concurrently wait for each other (a lock beside the file) and end with the same choices. A file that is
  // damaged or cannot be read, locked or written costs repeatability between runs, not the run: it is warned
  // of once and rewritten if possible.
  void use_file(const std::filesystem::path& file);

  // From now on a layer whose batch size is new takes the choice of the nearest batch size that is known.
  // Nothing is measured for it: the other ranks of an elastic job would wait. Such choices are in to_json(),
  // not in the file.
  void spare_measuring();

  // The path for `operation` among `candidates`, the first of which is the default: imported or known, else
  // measured. A path other than the default must be at least 5 % faster.
  ConvPath choose(const ConvOperation& operation, const std::vector<ConvPath>& candidates, const Runner& run);

  // All choices, and the inverse: imported choices take precedence over known ones. Throws ConfigError.
  nlohmann::json to_json() const;
  void import_json(const nlohmann::json& document);

  void clear();

 private:
  struct Choice {
    ConvPath path;
    bool imported = false;
    bool borrowed = false;  // from another batch size
  };

  std::optional<ConvPath> known(const std::string& key, const std::vector<ConvPath>& candidates) const;
  std::optional<ConvPath> borrow(const ConvOperation& operation, const std::vector<ConvPath>& candidates);
  nlohmann::json to_json_locked(bool borrowed) const;
  void merge_locked(const nlohmann::json& document, bool imported, const std::string& where);
  void merge_file_locked();
  void warn_once_locked(const std::string& problem);

  Clock clock_;
  mutable std::mutex mutex_;
  std::optional<ConvPath> forced_;
  std::filesystem::path file_;
  bool warned_ = false;
  bool borrows_ = false;
  std::map<std::string, Choice> choices_;
};

// "torch 2.10.0, Intel(R) Xeon(R) …": choices are valid for one such machine.
const std::string& machine_name();

}  // namespace yoke::compute
