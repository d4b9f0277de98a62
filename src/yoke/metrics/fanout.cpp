#include "yoke/metrics/fanout.h"

#include "yoke/metrics/jsonl.h"
#include "yoke/metrics/tensorboard.h"

namespace yoke::metrics {

std::unique_ptr<Fanout> to_files(const std::filesystem::path& folder, const OutOptions& options) {
  auto sinks = std::make_unique<Fanout>();
  sinks->add(std::make_unique<JsonLines>(folder / "metrics.jsonl"));
  if (options.tensorboard) sinks->add(std::make_unique<TensorBoard>(folder));
  return sinks;
}

}  // namespace yoke::metrics
