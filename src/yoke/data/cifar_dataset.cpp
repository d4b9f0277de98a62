#include "yoke/data/cifar_dataset.h"

#include <system_error>

#include "yoke/base/file.h"
#include "yoke/base/text.h"
#include "yoke/data/files.h"
#include "yoke/data/fit.h"
#include "yoke/data/formats/cifar.h"
#include "yoke/data/image_dataset.h"

namespace yoke::data {
namespace fs = std::filesystem;
namespace {

struct Version {
  CifarFormat format;
  const char* folder;  // that the archive unpacks to
  std::vector<std::string> training, test;
  std::vector<double> mean, deviation;
  const char* hint;
};

// All files of a split lie in the folder where the first is found.
ByteImages read_images(const Version& version, const DataOptions& options, Split split, fs::path& folder) {
  folder = options.dir.empty() ? "data" : options.dir;
  std::vector<fs::path> places{folder / version.folder};
  if (!options.dir.empty()) places.insert(places.begin(), folder);
  ByteImages images;
  for (const std::string& name : split == Split::kTrain ? version.training : version.test) {
    const auto have = static_cast<int64_t>(images.labels.size());
    if (have > 0 && limited(have + 1, options) <= have) break;  // data.limit needs no more files
    const fs::path path = find_file(options, places, {name}, version.hint);
    folder = path.parent_path();
    places = {folder};
    const std::string bytes = read_file(path);
    const auto records = static_cast<size_t>(check_cifar(bytes, version.format, path.string()));
    for (size_t i = 0; i < records; ++i)
      images.labels.push_back(
          static_cast<uint8_t>(bytes[i * version.format.record_bytes() + version.format.class_at()]));
    images.bytes += bytes;
  }
  images.start = version.format.image_at();
  images.stride = version.format.record_bytes();
  images.spec = {SampleKind::kImage, {3, 32, 32}, version.format.classes};
  images.mean = version.mean;
  images.deviation = version.deviation;
  return images;
}

// One name a line; empty if the file is missing or names another number of classes.
std::vector<std::string> names_in(const fs::path& file, int classes) {
  std::error_code ignored;  // names are for reports only
  if (!fs::is_regular_file(file, ignored)) return {};
  std::vector<std::string> names;
  for (const std::string& line : split(read_file(file), '\n'))
    if (!line.empty()) names.push_back(line);
  if (names.size() != static_cast<size_t>(classes)) names.clear();
  return names;
}

}  // namespace

std::unique_ptr<Dataset> open_cifar10(const DataOptions& options, Split split, const SampleSpec& wanted,
                                      uint64_t) {
  static const Version version{
      kCifar10Format,
      "cifar-10-batches-bin",
      {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin", "data_batch_5.bin"},
      {"test_batch.bin"},
      {0.4914, 0.4822, 0.4465},
      {0.2470, 0.2435, 0.2616},
      "Unpack www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz into data/, or set data.dir."};
  fs::path folder;
  ByteImages images = read_images(version, options, split, folder);
  images.class_names = {"airplane", "automobile", "bird",  "cat",  "deer",
                        "dog",      "frog",       "horse", "ship", "truck"};
  return make_image_dataset(std::move(images), options, wanted);
}

std::unique_ptr<Dataset> open_cifar100(const DataOptions& options, Split split, const SampleSpec& wanted,
                                       uint64_t) {
  static const Version version{
      kCifar100Format,
      "cifar-100-binary",
      {"train.bin"},
      {"test.bin"},
      {0.5071, 0.4865, 0.4409},
      {0.2673, 0.2564, 0.2762},
      "Unpack www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz into data/, or set data.dir."};
  fs::path folder;
  ByteImages images = read_images(version, options, split, folder);
  images.class_names = names_in(folder / "fine_label_names.txt", version.format.classes);
  return make_image_dataset(std::move(images), options, wanted);
}

}  // namespace yoke::data
