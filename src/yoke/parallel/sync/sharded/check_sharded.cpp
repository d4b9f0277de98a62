#include "yoke/parallel/sync/sharded/check_sharded.h"

#include "yoke/base/error.h"
#include "yoke/parallel/common/ddp/comm_hook.h"

namespace yoke::parallel {

void check_sharded(const Kit& kit, const MakeOptions& options) {
  auto refuse = [&](const std::string& what, const char* instead) {
    throw ConfigError("parallel.zero = {} cannot be combined with {}. {}", options.parallel.zero, what,
                      instead);
  };
  if (options.ddp.find_unused || options.ddp.static_graph)
    refuse("parameters without a gradient (ddp.find_unused, ddp.static_graph)", "Set parallel.zero = 0.");
  if (kit.model.sample.kind == SampleKind::kSparse)
    refuse("sparse gradients", "They are small: set parallel.zero = 0.");
}

FullyShardOptions how_to_gather(const Kit& kit, const MakeOptions& options) {
  FullyShardOptions how;
  how.offload = options.parallel.offload;
  how.share = options.ddp.share_parameters;
  how.reduce_type = cast_of_hook(options.ddp.hook);
  if (kit.autocast == Precision::kBf16) how.gather_type = torch::kBFloat16;
  if (kit.autocast == Precision::kFp16) how.gather_type = torch::kFloat16;
  return how;
}

}  // namespace yoke::parallel
