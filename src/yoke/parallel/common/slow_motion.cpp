#include "yoke/parallel/common/slow_motion.h"

#include <chrono>
#include <memory>
#include <thread>
#include <utility>

#include "yoke/base/clock.h"

namespace yoke::parallel {
namespace {

// Assumed ratio of backward to forward where it cannot be measured: nothing signals the end of the first
// block's backward.
constexpr double kBackwardShare = 2;

class SlowMotion {
 public:
  SlowMotion(const plan::DelayLaw& law, uint64_t seed, int worker) : delays_(law, seed, worker) {}

  void wait(double compute) {
    std::this_thread::sleep_for(std::chrono::duration<double>(delays_.next(compute)));
    mark_ = now_seconds();
  }
  // Time computed since the last wait.
  double elapsed() const { return now_seconds() - mark_; }
  void mark() { mark_ = now_seconds(); }

 private:
  plan::DelayStream delays_;
  double mark_ = 0;
};

models::Block stretched(const models::Block& block, bool first, std::shared_ptr<SlowMotion> motion,
                        const torch::nn::Module* module) {
  models::Block slow = block;
  slow.forward = [forward = block.forward, first, motion = std::move(motion),
                  module](const models::Tensors& inputs) {
    if (!module->is_training()) return forward(inputs);
    motion->mark();
    models::Tensors outputs = forward(inputs);
    const double seconds = motion->elapsed();
    motion->wait(seconds);
    bool hooked = false;
    for (torch::Tensor& output : outputs) {
      if (!output.requires_grad() || std::exchange(hooked, true)) continue;
      output.register_hook([motion, first, seconds](const torch::Tensor&) {
        // Here the backward of the following block has ended, and this block's starts.
        motion->wait(motion->elapsed() + (first ? kBackwardShare * seconds : 0));
      });
    }
    return outputs;
  };
  return slow;
}

}  // namespace

models::Model in_slow_motion(const models::Model& model, const plan::DelayLaw& law, uint64_t seed,
                             int worker) {
  using Kind = plan::DelayLaw::Kind;
  models::Model slow = model;
  if (law.kind == Kind::kNone) return slow;
  auto motion = std::make_shared<SlowMotion>(law, seed, worker);
  const torch::nn::Module* module = model.module.get();
  if (law.kind == Kind::kConst) {
    for (models::Block& block : slow.blocks)
      block = stretched(block, &block == &slow.blocks.front(), motion, module);
  }
  slow.loss = [loss = model.loss, motion, module](const models::Tensors& outputs,
                                                  const torch::Tensor& target) {
    motion->mark();
    torch::Tensor value = loss(outputs, target);
    if (module->is_training()) motion->wait(motion->elapsed());
    return value;
  };
  return slow;
}

}  // namespace yoke::parallel
