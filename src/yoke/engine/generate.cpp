#include "yoke/engine/generate.h"

#include <algorithm>

#include "yoke/base/error.h"
#include "yoke/models/gpt2/decoder.h"

namespace yoke::engine {
namespace {

std::span<const int64_t> last(const std::vector<int64_t>& tokens, int64_t count) {
  return std::span(tokens).last(static_cast<size_t>(std::min(count, static_cast<int64_t>(tokens.size()))));
}

}  // namespace

void generate(const models::Model& model, std::vector<int64_t> tokens, const GenerateOptions& options,
              const std::function<bool(int64_t)>& take) {
  YOKE_CHECK(!tokens.empty(), "generating from nothing");
  torch::NoGradGuard no_grad;
  models::Gpt2Decoder decoder(model);
  Sampler sampler(options.sampling, options.seed);
  const int64_t half = std::max<int64_t>(1, decoder.room() / 2);
  torch::Tensor logits = decoder.add(last(tokens, decoder.room()));
  for (int64_t i = 0; i < options.tokens; ++i) {
    torch::Tensor values = logits.to(torch::kCPU, torch::kFloat).contiguous();
    const int64_t known =
        options.vocabulary > 0 ? std::min(options.vocabulary, values.numel()) : values.numel();
    const int64_t next = sampler.pick({values.const_data_ptr<float>(), static_cast<size_t>(known)});
    if (!take(next) || next == options.end || i + 1 == options.tokens) return;
    tokens.push_back(next);
    const bool full = decoder.count() == decoder.room();
    if (full) decoder.forget();
    logits = decoder.add(last(tokens, full ? half : 1));
  }
}

}  // namespace yoke::engine
