#include "yoke/data/images_dataset.h"

#include <torch/torch.h>

#include <algorithm>
#include <mutex>
#include <set>
#include <thread>

#include "yoke/base/error.h"
#include "yoke/base/log.h"
#include "yoke/base/random.h"
#include "yoke/data/fit.h"
#include "yoke/data/formats/images/class_folders.h"
#include "yoke/data/formats/images/decode.h"
#include "yoke/data/formats/images/render.h"

namespace yoke::data {
namespace {

constexpr uint64_t kViewSeed = 0x706963, kMixSeed = 0x6d6978;  // purposes of derive_seed()
constexpr int64_t kMostReplacements = 100;  // broken files in a row before a run stops anyway

// What one thread reuses from picture to picture.
struct Space {
  std::string bytes;
  Picture picture;
  RenderSpace render;
  std::vector<float> other;
};

class ImagesDataset : public Dataset {
 public:
  ImagesDataset(ClassFolders folders, const DataOptions& options, Split split, SampleSpec spec, uint64_t seed)
      : folders_(std::move(folders)),
        options_(options),
        augmentation_{options.augment, options.jitter},
        training_(split == Split::kTrain),
        spec_(std::move(spec)),
        seed_(seed),
        size_(limited(static_cast<int64_t>(folders_.files().size()), options)) {}

  int64_t size() const override { return size_; }
  SampleSpec spec() const override { return spec_; }
  std::vector<std::string> class_names() const override { return folders_.classes(); }
  Batch gather(std::span<const int64_t> indices) const override { return draw(indices, 0); }

  // Loader threads make whole batches of the training set; batches of the test set are divided here.
  Batch draw(std::span<const int64_t> indices, int64_t epoch) const override {
    check_indices(indices, size_);
    const auto count = static_cast<int64_t>(indices.size());
    const bool mixes = training_ && options_.mixup > 0;
    Batch batch{
        {torch::empty({count, spec_.shape[0], side(), side()}, torch::kFloat32)},
        mixes ? torch::zeros({count, spec_.classes}, torch::kFloat32) : torch::empty({count}, torch::kInt64),
        count};
    const int64_t threads = training_ ? 1 : std::clamp<int64_t>(options_.workers, 1, count);
    in_threads(threads, [&](int64_t thread) {
      Space space;
      for (int64_t row = thread; row < count; row += threads)
        make(indices[static_cast<size_t>(row)], epoch, row, batch, space);
    });
    return batch;
  }

 private:
  int64_t side() const { return spec_.shape[1]; }
  int64_t sample_elements() const { return spec_.shape[0] * side() * side(); }

  // Rethrows the first error.
  template <class Work>
  static void in_threads(int64_t threads, Work work) {
    if (threads == 1) return work(0);
    std::vector<std::exception_ptr> errors(static_cast<size_t>(threads));
    {
      std::vector<std::jthread> running;
      for (int64_t t = 0; t < threads; ++t)
        running.emplace_back([&, t] {
          try {
            work(t);
          } catch (...) {
            errors[static_cast<size_t>(t)] = std::current_exception();
          }
        });
    }
    for (const std::exception_ptr& error : errors)
      if (error) std::rethrow_exception(error);
  }

  void make(int64_t index, int64_t epoch, int64_t row, Batch& batch, Space& space) const {
    float* out = batch.inputs[0].data_ptr<float>() + row * sample_elements();
    const int64_t label = show(index, epoch, space, out);
    if (batch.target.dim() == 1) {
      batch.target.data_ptr<int64_t>()[row] = label;
      return;
    }
    float* shares = batch.target.data_ptr<float>() + row * spec_.classes;
    Random random(derive_seed(derive_seed(seed_, kMixSeed, static_cast<uint64_t>(epoch)), 0,
                              static_cast<uint64_t>(index)));
    const auto kept = static_cast<float>(draw_mixup(options_.mixup, random));
    const auto partner = static_cast<int64_t>(random.below(static_cast<uint64_t>(size_)));
    space.other.resize(static_cast<size_t>(sample_elements()));
    const int64_t other = show(partner, epoch, space, space.other.data());
    for (int64_t i = 0; i < sample_elements(); ++i)
      out[i] = kept * out[i] + (1 - kept) * space.other[static_cast<size_t>(i)];
    shares[label] += kept;
    shares[other] += 1 - kept;
  }

  // Writes a sample and returns its class. In place of a broken file the next good one is trained on; in the
  // test set it does not count.
  int64_t show(int64_t index, int64_t epoch, Space& space, float* out) const {
    for (int64_t tried = 0; tried < std::min(size_, kMostReplacements); ++tried) {
      const int64_t at = (index + tried) % size_;
      const PictureFile& file = folders_.files()[static_cast<size_t>(file_of(at))];
      try {
        render_file(file, epoch, at, space, out);
        return file.label;
      } catch (const BadPicture& error) {
        report(file, error);
      }
      if (training_) continue;
      std::fill_n(out, sample_elements(), 0.f);
      return kNotCounted;
    }
    throw ConfigError("data.dir: {} files in a row are broken, the last one {}. Check the data.",
                      std::min(size_, kMostReplacements),
                      folders_.shown(folders_.files()[static_cast<size_t>(
                          file_of((index + std::min(size_, kMostReplacements) - 1) % size_))]));
  }

  // data.limit takes its samples from all classes.
  int64_t file_of(int64_t sample) const {
    const auto files = static_cast<int64_t>(folders_.files().size());
    return files == size_ ? sample
                          : static_cast<int64_t>(static_cast<double>(sample) * static_cast<double>(files) /
                                                 static_cast<double>(size_));
  }

  void render_file(const PictureFile& file, int64_t epoch, int64_t sample, Space& space, float* out) const {
    const std::string_view bytes = folders_.read(file, space.bytes);
    const int side = static_cast<int>(this->side());
    View view;
    decode_picture(
        bytes,
        [&](Size size) -> Request {
          view = view_of(size, epoch, sample);
          return {view.region, {side, side}};
        },
        space.picture);
    render(space.picture, view, static_cast<int>(spec_.shape[0]), side, space.render, out);
  }

  View view_of(Size size, int64_t epoch, int64_t sample) const {
    if (!training_) return test_view(augmentation_, size);
    Random random(derive_seed(derive_seed(seed_, kViewSeed, static_cast<uint64_t>(epoch)), 0,
                              static_cast<uint64_t>(sample)));
    return training_view(augmentation_, size, static_cast<int>(side()), random);
  }

  // Each file once.
  void report(const PictureFile& file, const BadPicture& error) const {
    if (options_.on_bad_file == "stop")
      throw ConfigError("{}: {}. Replace or remove it, or set data.on_bad_file = \"skip\".",
                        folders_.shown(file), error.what());
    std::lock_guard lock(mutex_);
    if (reported_.insert(&file).second) log::warn("skipped {}: {}", folders_.shown(file), error.what());
  }

  ClassFolders folders_;
  const DataOptions options_;
  const Augmentation augmentation_;
  const bool training_;
  const SampleSpec spec_;
  const uint64_t seed_;
  const int64_t size_;
  mutable std::mutex mutex_;
  mutable std::set<const PictureFile*> reported_;
};

}  // namespace

std::unique_ptr<Dataset> open_images(const DataOptions& options, Split split, const SampleSpec& wanted,
                                     uint64_t seed) {
  const std::filesystem::path dir = options.dir.empty() ? "data/images" : options.dir;
  const std::vector<std::string> training_names{"train"}, test_names{"val", "test"};
  const bool training = split == Split::kTrain;
  ClassFolders folders(dir, training ? training_names : test_names);
  if (!training && has_pictures(dir, training_names))
    check_same_classes(ClassFolders(dir, training_names), folders);
  const SampleSpec own{SampleKind::kImage, {3, 224, 224}, static_cast<int64_t>(folders.classes().size())};
  if (wanted.kind != SampleKind::kImage) throw_mismatch(options, own, wanted);
  SampleSpec have = wanted;
  have.classes = own.classes;
  if (have != wanted) throw_mismatch(options, have, wanted);
  return std::make_unique<ImagesDataset>(std::move(folders), options, split, std::move(have), seed);
}

}  // namespace yoke::data
