// Pictures per second that the loader decodes and augments:
//   ninja -C build bench_image_loading && build/bench_image_loading FOLDER [threads] [batches]
//   [imagenet|none]
// FOLDER has train/ with class folders. Batches of 64, 224x224. Prints one number.
#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "yoke/base/clock.h"
#include "yoke/base/error.h"
#include "yoke/data/loader.h"

int main(int argc, char** argv) try {
  using namespace yoke;
  if (argc < 2) throw ConfigError("usage: bench_image_loading FOLDER [threads] [batches] [imagenet|none]");
  data::DataOptions options;
  options.name = "images";
  options.dir = argv[1];
  options.workers = argc > 2 ? std::atoi(argv[2]) : 1;
  options.augment = argc > 4 ? argv[4] : "imagenet";
  const int64_t batches = argc > 3 ? std::atoi(argv[3]) : 20;
  int64_t classes = 0;
  for (const auto& entry : std::filesystem::directory_iterator(std::filesystem::path(argv[1]) / "train"))
    classes += entry.is_directory() ? 1 : 0;
  const auto set = data::open(options, data::Split::kTrain, {SampleKind::kImage, {3, 224, 224}, classes}, 1);
  data::Loader loader(*set, options, 1);
  const int64_t warm = std::max<int64_t>(1, options.workers);
  for (int64_t i = 0; i < warm; ++i) loader.next();
  const Stopwatch watch;
  for (int64_t i = 0; i < batches; ++i) loader.next();
  fmt::print("{:.1f}\n", static_cast<double>(batches * options.batch_size) / watch.seconds());
} catch (const yoke::Error& error) {
  fmt::print(stderr, "error: {}\n", error.what());
  return 2;
}
