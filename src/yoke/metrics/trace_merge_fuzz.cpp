// Any two files in place of ranks' traces are either joined or a ConfigError.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include <unistd.h>

#include "yoke/base/error.h"
#include "yoke/metrics/trace_merge.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const auto folder =
      std::filesystem::temp_directory_path() / ("trace_merge_fuzz." + std::to_string(::getpid()));
  std::filesystem::create_directories(folder);
  for (size_t rank = 0; rank < 2; ++rank) {
    std::ofstream file(folder / ("rank-" + std::to_string(rank) + ".json"));
    size_t begin = rank * (size / 2), end = rank == 0 ? size / 2 : size;
    file << "{\n" << std::string(reinterpret_cast<const char*>(data) + begin, end - begin);
  }
  try {
    auto merged = yoke::metrics::merge_traces(folder);
    if (merged && merged->straggler_text().size() > 1000) std::abort();
  } catch (const yoke::ConfigError&) {
  }
  return 0;
}
