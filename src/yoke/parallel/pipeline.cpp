#include "yoke/parallel/pipeline.h"

#include "yoke/base/error.h"
#include "yoke/comm/tensors/tensors.h"
#include "yoke/parallel/maker.h"
#include "yoke/parallel/schedule/pipeline/pipeline_strategy.h"

namespace yoke::parallel {

struct Pipeline::Parts {
  Kit kit;
  MakeOptions options;
  std::unique_ptr<Strategy> strategy;
};

Pipeline::Pipeline(models::Model model, models::Tensors sample, comm::Communicator& comm,
                   OwnPipelineOptions options)
    : parts_(std::make_unique<Parts>()) {
  if (options.copies < 1 || comm.size() % options.copies != 0)
    throw ConfigError("Pipeline: {} ranks cannot be {} copies of a pipeline. Start a multiple of {}.",
                      comm.size(), options.copies, std::max<int64_t>(1, options.copies));
  Kit& kit = parts_->kit;
  kit.device = options.device;
  kit.model = std::move(model);
  kit.model.module->to(options.device);
  kit.place = [device = options.device](const torch::Tensor& input) { return input.to(device); };
  for (const torch::Tensor& parameter : kit.model.module->parameters())
    comm::broadcast(comm, parameter.detach(), 0, "weights");
  MakeOptions& how = parts_->options;
  how.pipeline = options;
  how.parallel.pipeline = comm.size() / options.copies;
  how.optimizer = settle_groups(kit, options.optimizer);
  how.links.world = &comm;
  how.links.workers = comm.size();
  how.links.rank = comm.rank();
  how.batch_size = options.batch_size;
  how.sample_inputs = [sample = std::move(sample)] { return sample; };
  kit.maker = place_model(kit, how);
  kit.optimizer = make_optimizer(kit, how.optimizer);
  kit.scaler = optim::GradScaler({.enabled = false});
  parts_->strategy = kit.maker->strategy();
}

Pipeline::~Pipeline() = default;

double Pipeline::step(const models::Tensors& inputs, const torch::Tensor& target, double lr) {
  Strategy& strategy = *parts_->strategy;
  strategy.acquire();
  ComputeResult result = strategy.compute(inputs, target, {.lr = lr});
  StepNews all = strategy.agree({.loss = result.loss});
  strategy.commit({.lr = lr});
  strategy.settle();
  return all.loss.item<double>();
}

void Pipeline::drain() {
  parts_->strategy->drain();
}

models::Tensors Pipeline::forward(const models::Tensors& inputs) {
  return parts_->strategy->forward(inputs);
}

int Pipeline::stage() const {
  auto* staged = dynamic_cast<PipelineStrategy*>(parts_->strategy.get());
  return staged == nullptr ? 0 : staged->stage().place.stage;
}

int Pipeline::stages() const {
  return static_cast<int>(parts_->options.parallel.pipeline);
}

int64_t Pipeline::copy() const {
  return parts_->strategy->share().part;
}

std::vector<optim::NamedTensor> Pipeline::parameters() const {
  return parts_->kit.maker->parameters();
}

}  // namespace yoke::parallel
