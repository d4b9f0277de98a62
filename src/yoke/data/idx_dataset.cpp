#include "yoke/data/idx_dataset.h"

#include "yoke/base/error.h"
#include "yoke/base/file.h"
#include "yoke/data/files.h"
#include "yoke/data/formats/gzip.h"
#include "yoke/data/formats/idx.h"
#include "yoke/data/image_dataset.h"

namespace yoke::data {
namespace fs = std::filesystem;
namespace {

constexpr int64_t kClasses = 10;

struct Source {
  std::vector<fs::path> usual_places;
  fs::path torchvision_folder;  // below the root that torchvision downloads into
  double mean;
  double deviation;
  std::string_view hint;
  std::vector<std::string> class_names{};
};

std::vector<fs::path> places(const DataOptions& options, const Source& source) {
  if (options.dir.empty()) return source.usual_places;
  return {options.dir, fs::path(options.dir) / source.torchvision_folder};
}

std::string read_plain_or_gzip(const fs::path& path) {
  std::string bytes = read_file(path);
  return path.extension() == ".gz" ? unpack_gzip(bytes, path.string()) : bytes;
}

std::vector<uint8_t> read_labels(const fs::path& path) {
  const std::string bytes = read_plain_or_gzip(path);
  const IdxArray array = parse_idx(bytes, 1, path.string());
  std::vector<uint8_t> labels(array.values.begin(), array.values.end());
  for (size_t i = 0; i < labels.size(); ++i) {
    if (labels[i] >= kClasses) {
      throw ConfigError("{}, byte {}: expected a label 0..{}, found {}.", path.string(),
                        bytes.size() - labels.size() + i, kClasses - 1, labels[i]);
    }
  }
  return labels;
}

std::unique_ptr<Dataset> open_source(const Source& source, const DataOptions& options, Split split,
                                     const SampleSpec& wanted) {
  const std::string prefix = split == Split::kTrain ? "train" : "t10k";
  const std::string images_name = prefix + "-images-idx3-ubyte", labels_name = prefix + "-labels-idx1-ubyte";
  const fs::path images_path =
      find_file(options, places(options, source), {images_name, images_name + ".gz"}, source.hint);
  // Labels of another folder would belong to other images.
  const fs::path labels_path =
      find_file(options, {images_path.parent_path()}, {labels_name, labels_name + ".gz"}, source.hint);

  ByteImages images;
  images.bytes = read_plain_or_gzip(images_path);
  const IdxArray array = parse_idx(images.bytes, 3, images_path.string());
  images.labels = read_labels(labels_path);
  if (static_cast<size_t>(array.shape[0]) != images.labels.size()) {
    throw ConfigError(
        "{}, byte 4: {} images, but {} has {} labels. Do the files belong to the same data set?",
        images_path.string(), array.shape[0], labels_path.string(), images.labels.size());
  }
  images.start = images.bytes.size() - array.values.size();
  images.stride = static_cast<size_t>(array.shape[1] * array.shape[2]);
  images.spec = {SampleKind::kImage, {1, array.shape[1], array.shape[2]}, kClasses};
  images.mean = {source.mean};
  images.deviation = {source.deviation};
  images.class_names = source.class_names;
  return make_image_dataset(std::move(images), options, wanted);
}

}  // namespace

std::unique_ptr<Dataset> open_fashion_mnist(const DataOptions& options, Split split, const SampleSpec& wanted,
                                            uint64_t) {
  static const Source source{
      {"/usr/share/datasets/fashion-mnist", "data/fashion-mnist", "data/FashionMNIST/raw"},
      "FashionMNIST/raw",
      0.2860,
      0.3530,
      "Install the Debian package dataset-fashion-mnist, put the files of "
      "github.com/zalandoresearch/fashion-mnist into "
      "data/fashion-mnist, or set data.dir.",
      {"T-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot"}};
  return open_source(source, options, split, wanted);
}

std::unique_ptr<Dataset> open_mnist(const DataOptions& options, Split split, const SampleSpec& wanted,
                                    uint64_t) {
  static const Source source{
      {"data/mnist", "data/MNIST/raw"},
      "MNIST/raw",
      0.1307,
      0.3081,
      "Put the files of ossci-datasets.s3.amazonaws.com/mnist into data/mnist, or set data.dir."};
  return open_source(source, options, split, wanted);
}

}  // namespace yoke::data
