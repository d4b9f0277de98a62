#include "yoke/data/cifar_dataset.h"

#include "yoke/base/file.h"
#include "yoke/data/files.h"
#include "yoke/data/fit.h"
#include "yoke/data/formats/cifar.h"
#include "yoke/data/image_dataset.h"

namespace yoke::data {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kHint =
    "Unpack www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz into data/, or set data.dir.";

std::vector<std::string> file_names(Split split) {
  if (split == Split::kTest) return {"test_batch.bin"};
  return {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin", "data_batch_5.bin"};
}

}  // namespace

std::unique_ptr<Dataset> open_cifar10(const DataOptions& options, Split split, const SampleSpec& wanted,
                                      uint64_t) {
  const fs::path folder = options.dir.empty() ? "data" : options.dir;
  std::vector<fs::path> places{folder / "cifar-10-batches-bin"};
  if (!options.dir.empty()) places.insert(places.begin(), folder);

  ByteImages images;
  for (const std::string& name : file_names(split)) {
    const auto have = static_cast<int64_t>(images.labels.size());
    if (have > 0 && limited(have + 1, options) <= have) break;  // data.limit needs no more files
    const fs::path path = find_file(options, places, {name}, kHint);
    places = {path.parent_path()};
    const std::string bytes = read_file(path);
    const int64_t records = check_cifar10(bytes, path.string());
    for (int64_t i = 0; i < records; ++i) {
      images.labels.push_back(static_cast<uint8_t>(bytes[static_cast<size_t>(i * kCifarRecordBytes)]));
    }
    images.bytes += bytes;
  }
  images.start = 1;
  images.stride = static_cast<size_t>(kCifarRecordBytes);
  images.spec = {SampleKind::kImage, {3, 32, 32}, 10};
  images.mean = {0.4914, 0.4822, 0.4465};
  images.deviation = {0.2470, 0.2435, 0.2616};
  images.class_names = {"airplane", "automobile", "bird",  "cat",  "deer",
                        "dog",      "frog",       "horse", "ship", "truck"};
  return make_image_dataset(std::move(images), options, wanted);
}

}  // namespace yoke::data
