#include "yoke/checkpoint/pieces.h"

#include <algorithm>
#include <map>

#include "yoke/base/error.h"

namespace yoke::checkpoint {
namespace {

// A view, or a copy of several ranges side by side.
torch::Tensor slice_of(const torch::Tensor& whole, const PieceAt& at) {
  if (at.dim < 0) return whole;
  if (at.ranges.size() == 1) return whole.narrow(at.dim, at.ranges[0].offset, at.ranges[0].extent);
  std::vector<torch::Tensor> parts;
  for (const PieceRange& range : at.ranges) parts.push_back(whole.narrow(at.dim, range.offset, range.extent));
  return torch::cat(parts, at.dim);
}

void put_slice(const torch::Tensor& whole, const PieceAt& at, const torch::Tensor& slice) {
  if (at.ranges.size() < 2) return;  // it was a view
  int64_t from = 0;
  for (const PieceRange& range : at.ranges) {
    whole.narrow(at.dim, range.offset, range.extent).copy_(slice.narrow(at.dim, from, range.extent));
    from += range.extent;
  }
}

torch::Tensor in_memory_order(const torch::Tensor& slice, const PieceAt& at) {
  torch::Tensor laid_out = slice.contiguous(at.channels_last ? torch::MemoryFormat::ChannelsLast
                                                             : torch::MemoryFormat::Contiguous);
  return laid_out.as_strided({laid_out.numel()}, {1}, laid_out.storage_offset());
}

// A whole tensor that is being put together.
class Whole {
 public:
  Whole(std::string name, torch::Tensor tensor, bool channels_last)
      : name_(std::move(name)), tensor_(std::move(tensor)), channels_last_(channels_last) {}

  void add(const PieceAt& at, const torch::Tensor& values, const std::string& what) {
    if (!fits(at, values))
      throw ConfigError("{}: a piece of '{}' ({}) does not fit with the others.", what, name_,
                        piece_name("", at));
    put(tensor_, at, values);
    filled_ += values.numel();
  }
  void check(const std::string& what) const {
    if (filled_ != tensor_.numel())
      throw ConfigError("{}: '{}' has {} of its {} elements: a piece is missing.", what, name_, filled_,
                        tensor_.numel());
  }

 private:
  using Ranges = std::map<int64_t, int64_t>;  // begin -> end

  static bool take(Ranges& taken, int64_t begin, int64_t end) {
    auto next = taken.lower_bound(begin);
    const bool overlaps = (next != taken.end() && next->first < end) ||
                          (next != taken.begin() && std::prev(next)->second > begin);
    if (!overlaps) taken[begin] = end;
    return !overlaps;
  }

  bool fits(const PieceAt& at, const torch::Tensor& values) {
    if (values.scalar_type() != tensor_.scalar_type() || at.channels_last != channels_last_) return false;
    int64_t elements = tensor_.numel(), offset = 0;
    if (at.dim >= 0) {
      if (at.dim >= tensor_.dim() || at.ranges.empty() || (dim_ >= 0 && at.dim != dim_)) return false;
      dim_ = at.dim;
      offset = at.ranges[0].offset;
      int64_t extent = 0;
      for (const PieceRange& range : at.ranges) {
        if (range.extent > tensor_.size(at.dim) - range.offset) return false;
        extent += range.extent;
      }
      elements = elements / tensor_.size(at.dim) * extent;
      auto known = slices_.find(offset);
      if (known != slices_.end() ? known->second != at.ranges : !take_slice(at.ranges)) return false;
    } else if (dim_ >= 0) {
      return false;
    }
    const int64_t begin = at.begin, end = at.end > 0 ? at.end : elements;
    return end <= elements && values.numel() == end - begin && take(runs_[offset], begin, end);
  }

  bool take_slice(const std::vector<PieceRange>& ranges) {
    slices_[ranges[0].offset] = ranges;
    return std::ranges::all_of(ranges, [&](const PieceRange& range) {
      return take(taken_, range.offset, range.offset + range.extent);
    });
  }

  std::string name_;
  torch::Tensor tensor_;
  bool channels_last_;
  int64_t filled_ = 0;
  int64_t dim_ = -1;
  std::map<int64_t, std::vector<PieceRange>> slices_;  // by their first offset
  Ranges taken_;                                       // by all of them
  std::map<int64_t, Ranges> runs_;                     // by the offset of their slice
};

}  // namespace

torch::Tensor cut(const torch::Tensor& whole, const PieceAt& at) {
  torch::Tensor slice = slice_of(whole, at);
  return at.end == 0 ? slice : in_memory_order(slice, at).narrow(0, at.begin, at.end - at.begin);
}

void put(const torch::Tensor& whole, const PieceAt& at, const torch::Tensor& values) {
  torch::Tensor slice = slice_of(whole, at);
  if (at.end == 0) {
    slice.copy_(values.reshape(slice.sizes()));
    return put_slice(whole, at, slice);
  }
  torch::Tensor run = in_memory_order(slice, at);
  run.narrow(0, at.begin, at.end - at.begin).copy_(values.reshape({-1}));
  if (run.const_data_ptr() == slice.const_data_ptr()) return put_slice(whole, at, slice);  // a view of it
  auto order = at.channels_last ? torch::MemoryFormat::ChannelsLast : torch::MemoryFormat::Contiguous;
  slice.copy_(run.as_strided(slice.sizes(),
                             torch::empty(slice.sizes(), slice.options().memory_format(order)).strides()));
  put_slice(whole, at, slice);
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
  int64_t elements = 0;  // in all pieces: no whole has more
  for (const NamedTensor& one : tensors) elements += one.second.numel();
  for (NamedTensor& one : tensors) {
    std::optional<NamedPiece> piece = parse_piece_name(one.first);
    if (!piece) {
      result.push_back(std::move(one));
      continue;
    }
    auto found = wholes.find(piece->whole);
    if (found == wholes.end()) {
      if (piece->at.shape.empty()) {
        size_t slash = piece->whole.find('/');
        auto like = shapes.find(slash == std::string::npos ? piece->whole : piece->whole.substr(slash + 1));
        if (like == shapes.end())
          throw ConfigError("{}: a piece of '{}', which the model does not have.", what, piece->whole);
        piece->at.shape = like->second.sizes().vec();
      }
      const bool channels_last = piece->at.channels_last;
      if (channels_last && piece->at.shape.size() != 4)
        throw ConfigError("{}: '{}' is no tensor of channels.", what, piece->whole);
      int64_t room = elements;
      for (int64_t size : piece->at.shape) room /= std::max<int64_t>(1, size);
      if (room == 0)
        throw ConfigError("{}: '{}' is larger than all pieces together: a piece is missing.", what,
                          piece->whole);
      auto order = channels_last ? torch::MemoryFormat::ChannelsLast : torch::MemoryFormat::Contiguous;
      torch::Tensor empty = torch::empty(piece->at.shape, one.second.options().memory_format(order));
      found = wholes.emplace(piece->whole, Whole(piece->whole, empty, channels_last)).first;
      result.emplace_back(piece->whole, empty);
    }
    found->second.add(piece->at, one.second, what);
  }
  for (const auto& [name, whole] : wholes) whole.check(what);
  return result;
}

}  // namespace yoke::checkpoint
