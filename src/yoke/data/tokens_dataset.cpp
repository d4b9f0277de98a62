#include "yoke/data/tokens_dataset.h"

#include <algorithm>

#include "yoke/base/error.h"
#include "yoke/base/file.h"
#include "yoke/data/files.h"
#include "yoke/data/fit.h"
#include "yoke/data/formats/tokens.h"

namespace yoke::data {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kHint =
    "Set data.dir to a folder with train.bin and val.bin (tokens of 16 or 32 bits, as nanoGPT and llm.c "
    "write "
    "them), or to a file whose name has 'train' in it.";
constexpr int64_t kCheckedAtOpening = 64 << 20;

class TokensDataset : public Dataset {
 public:
  TokensDataset(const fs::path& path, const DataOptions& options, int64_t length, int64_t vocabulary)
      : path_(path.string()),
        mapped_(path),
        file_(parse_tokens(mapped_.view(), path_, vocabulary)),
        length_(length),
        vocabulary_(vocabulary) {
    size_ = limited((file_.count() - 1) / length_, options);
    if (size_ < 1) {
      throw ConfigError("{}, byte {}: {} tokens; one sample needs data.seq_len + 1 = {}.", path_,
                        mapped_.size(), file_.count(), length_ + 1);
    }
    check_vocabulary(file_, 0, std::min(size_ * length_ + 1, kCheckedAtOpening), vocabulary_, path_);
  }

  int64_t size() const override { return size_; }
  SampleSpec spec() const override { return {SampleKind::kTokens, {length_}, vocabulary_}; }

  Batch gather(std::span<const int64_t> indices) const override {
    check_indices(indices, size_);
    const auto count = static_cast<int64_t>(indices.size());
    Batch batch{{torch::empty({count, length_}, torch::kInt64)},
                torch::empty({count, length_}, torch::kInt64),
                count};
    auto* input = batch.inputs[0].data_ptr<int64_t>();
    auto* target = batch.target.data_ptr<int64_t>();
    for (int64_t index : indices) {
      const int64_t begin = index * length_;
      check_vocabulary(file_, begin, begin + length_ + 1, vocabulary_, path_);
      for (int64_t t = 0; t < length_; ++t) *input++ = file_.at(begin + t);
      for (int64_t t = 1; t <= length_; ++t) *target++ = file_.at(begin + t);
    }
    return batch;
  }

 private:
  std::string path_;
  MappedFile mapped_;
  TokenFile file_;
  int64_t length_;
  int64_t vocabulary_;
  int64_t size_;
};

}  // namespace

std::unique_ptr<Dataset> open_tokens(const DataOptions& options, Split split, const SampleSpec& wanted,
                                     uint64_t) {
  if (wanted.kind != SampleKind::kTokens) throw_other_kind(options, "tokens", wanted);
  const std::string name = split == Split::kTrain ? "train.bin" : "val.bin";
  return std::make_unique<TokensDataset>(find_split(options, split, {name}, "val", kHint), options,
                                         sequence_length(options, wanted), wanted.classes);
}

}  // namespace yoke::data
