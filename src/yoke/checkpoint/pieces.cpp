#include "yoke/checkpoint/pieces.h"

#include <charconv>
#include <map>
#include <optional>

#include "yoke/base/error.h"

namespace yoke::checkpoint {
namespace {

constexpr const char* kChannelsLast = "@channels_last";

struct PieceName {
  std::string whole;
  int64_t begin = 0, end = 0;
  bool channels_last = false;
};

std::optional<PieceName> parse_piece(std::string name) {
  PieceName piece;
  std::string_view suffix = kChannelsLast;
  piece.channels_last = name.size() > suffix.size() && name.ends_with(suffix);
  if (piece.channels_last) name.resize(name.size() - suffix.size());
  size_t at = name.rfind('@'), colon = name.rfind(':');
  if (at == std::string::npos || colon == std::string::npos || colon < at) return std::nullopt;
  const char* text = name.data();
  auto first = std::from_chars(text + at + 1, text + colon, piece.begin);
  auto second = std::from_chars(text + colon + 1, text + name.size(), piece.end);
  bool numbers = first.ec == std::errc() && first.ptr == text + colon && second.ec == std::errc() &&
                 second.ptr == text + name.size();
  if (!numbers || piece.begin < 0 || piece.end <= piece.begin) return std::nullopt;
  piece.whole = name.substr(0, at);
  return piece;
}

// A whole tensor that is being put together.
struct Whole {
  torch::Tensor tensor;
  int64_t filled = 0;
  std::map<int64_t, int64_t> ranges;  // begin -> end
};

void put(Whole& whole, const PieceName& piece, const torch::Tensor& values, const std::string& what) {
  int64_t count = piece.end - piece.begin;
  bool fits = values.numel() == count && piece.end <= whole.tensor.numel() &&
              values.scalar_type() == whole.tensor.scalar_type() &&
              piece.channels_last == (whole.tensor.dim() == 4 && !whole.tensor.is_contiguous());
  auto next = whole.ranges.lower_bound(piece.begin);
  bool overlaps = (next != whole.ranges.end() && next->first < piece.end) ||
                  (next != whole.ranges.begin() && std::prev(next)->second > piece.begin);
  if (!fits || overlaps)
    throw ConfigError("{}: the piece {}..{} of '{}' does not fit with the others.", what, piece.begin,
                      piece.end, piece.whole);
  whole.ranges[piece.begin] = piece.end;
  whole.filled += count;
  whole.tensor.as_strided({whole.tensor.numel()}, {1})
      .narrow(0, piece.begin, count)
      .copy_(values.reshape({-1}));
}

}  // namespace

std::string piece_name(const std::string& whole, int64_t begin, int64_t end, bool channels_last) {
  return fmt::format("{}@{}:{}{}", whole, begin, end, channels_last ? kChannelsLast : "");
}

std::vector<NamedTensor> load_files(const std::filesystem::path& checkpoint, const format::Manifest& manifest,
                                    const std::string& kind) {
  std::vector<NamedTensor> tensors;
  bool some = false;
  for (const format::FileEntry& file : manifest.files) {
    bool ours = file.name == kind + ".safetensors" ||
                (file.name.starts_with(kind + "-") && file.name.ends_with(".safetensors"));
    if (!ours) continue;
    some = true;
    for (NamedTensor& one : load_tensors(checkpoint / file.name).tensors) tensors.push_back(std::move(one));
  }
  if (!some) throw ConfigError("{}: no {}.safetensors in it.", checkpoint.string(), kind);
  return tensors;
}

std::vector<NamedTensor> join_pieces(std::vector<NamedTensor> tensors, const std::vector<NamedTensor>& model,
                                     const std::string& what) {
  torch::NoGradGuard no_grad;
  std::map<std::string, torch::Tensor> shapes(model.begin(), model.end());
  std::map<std::string, Whole> wholes;
  std::vector<NamedTensor> result;
  for (NamedTensor& one : tensors) {
    std::optional<PieceName> piece = parse_piece(one.first);
    if (!piece) {
      result.push_back(std::move(one));
      continue;
    }
    auto found = wholes.find(piece->whole);
    if (found == wholes.end()) {
      size_t slash = piece->whole.find('/');
      auto like = shapes.find(slash == std::string::npos ? piece->whole : piece->whole.substr(slash + 1));
      if (like == shapes.end())
        throw ConfigError("{}: a piece of '{}', which the model does not have.", what, piece->whole);
      auto layout =
          piece->channels_last ? torch::MemoryFormat::ChannelsLast : torch::MemoryFormat::Contiguous;
      if (piece->channels_last && like->second.dim() != 4)
        throw ConfigError("{}: '{}' is no tensor of channels.", what, piece->whole);
      torch::Tensor empty = torch::empty(like->second.sizes(), one.second.options().memory_format(layout));
      found = wholes.emplace(piece->whole, Whole{empty, 0, {}}).first;
      result.emplace_back(piece->whole, empty);
    }
    put(found->second, *piece, one.second, what);
  }
  for (const auto& [name, whole] : wholes)
    if (whole.filled != whole.tensor.numel())
      throw ConfigError("{}: '{}' has {} of its {} elements.", what, name, whole.filled,
                        whole.tensor.numel());
  return result;
}

}  // namespace yoke::checkpoint
