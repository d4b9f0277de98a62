#include "yoke/engine/worker.h"

#include <torch/cuda.h>
#include <torch/nn/modules/batchnorm.h>

#include <filesystem>
#include <map>
#include <optional>
#include <utility>

#include "yoke/base/log.h"
#include "yoke/checkpoint/weights.h"
#include "yoke/compute/allocator.h"
#include "yoke/compute/conv_path.h"
#include "yoke/compute/determinism.h"
#include "yoke/compute/device.h"
#include "yoke/compute/label_smoothing.h"
#include "yoke/data/dataset.h"
#include "yoke/engine/fit_budget.h"
#include "yoke/engine/out_of_memory.h"
#include "yoke/engine/run_state.h"
#include "yoke/models/outline/outline.h"
#include "yoke/parallel/can_record.h"

namespace yoke::engine {
namespace {

bool is_image_model(const models::Model& model) {
  return model.sample.kind == SampleKind::kImage;
}

// The type of the weights themselves, with fp32 masters in the optimizer, which saves autocast's casts: bf16
// on CUDA; fp16 too where steps are recorded, whose updates take scaled gradients. Otherwise empty.
std::optional<torch::ScalarType> narrow_type(const Worker& worker, const WorkerOptions& options) {
  if (!worker.device.is_cuda()) return std::nullopt;
  if (worker.precision == Precision::kBf16) return torch::kBFloat16;
  if (worker.precision == Precision::kFp16 && parallel::can_record(worker, options)) return torch::kHalf;
  return std::nullopt;
}

// BatchNorm stays fp32: its statistics need it and its kernels accept mixed types.
void narrow_weights(torch::nn::Module& module, torch::ScalarType type) {
  for (const auto& part : module.modules()) {
    if (part->as<torch::nn::BatchNorm2d>() != nullptr) continue;
    for (auto& item : part->named_parameters(/*recurse=*/false)) item.value().set_data(item.value().to(type));
  }
}

void spread_channels_last(torch::nn::Module& module) {
  for (torch::Tensor& parameter : module.parameters()) {
    if (parameter.dim() == 4) parameter.set_data(parameter.contiguous(torch::MemoryFormat::ChannelsLast));
  }
}

std::function<torch::Tensor(const torch::Tensor&)> placement(const Worker& worker, torch::ScalarType type,
                                                             bool channels_last) {
  return [device = worker.device, type, channels_last](const torch::Tensor& input) {
    torch::Tensor placed = input.to(device, /*non_blocking=*/true);
    if (!placed.is_floating_point()) return placed;
    placed = placed.to(type);
    if (channels_last && placed.dim() == 4) placed = placed.contiguous(torch::MemoryFormat::ChannelsLast);
    return placed;
  };
}

// The values that parameters have now, also after they are given others.
std::vector<optim::NamedTensor> values_of(const torch::nn::Module& module) {
  std::vector<optim::NamedTensor> values;
  for (const auto& item : module.named_parameters()) values.emplace_back(item.key(), item.value().detach());
  return values;
}

// The masters start from the weights before rounding.
void fill_masters(Worker& worker, const std::vector<optim::NamedTensor>& weights) {
  torch::NoGradGuard no_grad;
  std::map<std::string, torch::Tensor> full(weights.begin(), weights.end());
  if (full.empty()) return;
  const std::string prefix = "master/";
  for (const parallel::StatePiece& piece : worker.maker->optimizer_state())
    if (piece.kind == parallel::StatePiece::Kind::kOptimizer && piece.name.starts_with(prefix))
      piece.values.copy_(checkpoint::cut(full.at(piece.name.substr(prefix.size())), piece));
}

void load_weights(Worker& worker, const WorkerOptions& options) {
  torch::NoGradGuard no_grad;
  if (options.init.empty()) return;
  checkpoint::copy_weights(checkpoint::load_weights(options.init), named_tensors(*worker.model.module),
                           options.init);
}

// Failing to write costs repeatability between runs, not the run.
void remember_choices(const std::filesystem::path& file) {
  if (file.empty()) return;
  std::error_code error;
  std::filesystem::create_directories(file.parent_path(), error);
  if (error) {
    log::warn(
        "{}: {}; convolution paths are measured anew in every run, which may change its last bits. Set "
        "XDG_CACHE_HOME.",
        file.parent_path().string(), error.message());
    return;
  }
  compute::ConvChoices::global().use_file(file);
}

// Evaluations, which run without gradients, have the plain loss.
void smooth_labels(models::Model& model, double amount) {
  if (amount == 0) return;
  if (!models::is_built_in(model.name) || model.sample.kind == SampleKind::kSparse)
    throw ConfigError(
        "train.label_smoothing = {}: model.name = \"{}\" has a loss of its own, not a cross entropy over "
        "classes. Smooth its targets there, and set train.label_smoothing = 0.",
        amount, model.name);
  model.loss = [amount, loss = std::move(model.loss)](const models::Tensors& outputs,
                                                      const torch::Tensor& target) {
    compute::LabelSmoothing scope(torch::GradMode::is_enabled() ? amount : 0);
    return loss(outputs, target);
  };
}

// Measured choices may differ in the next run.
void choose_convolutions(const WorkerOptions& options) {
  bool fixed = options.compute.deterministic && options.compute.conv == "auto";
  compute::ConvChoices::global().set_mode(fixed ? "onednn" : options.compute.conv);
  remember_choices(options.tuning_file);
}

// Ranks of one machine are assigned its GPUs round-robin.
std::string device_of(const WorkerOptions& options) {
  if (options.compute.device != "cuda" || options.local_ranks == 1) return options.compute.device;
  auto devices = std::max<int64_t>(1, static_cast<int64_t>(torch::cuda::device_count()));
  return fmt::format("cuda:{}", options.local_rank % devices);
}

// The same on every rank: it determines where a model is split.
models::Tensors inputs_of_one_sample(const models::Model& model) {
  data::DataOptions data;
  data.samples = 1;
  std::vector<int64_t> first = {0};
  return data::open(data, data::Split::kTrain, model.sample, /*seed=*/1)->gather(first).inputs;
}

void build(Worker* worker, WorkerOptions& options) {
  worker->device = compute::resolve_device(device_of(options));
  worker->precision = parse_precision(options.compute.precision);
  compute::set_threads(options.compute.threads, options.local_ranks);
  compute::keep_freed_memory();
  compute::set_deterministic(options.compute.deterministic);
  choose_convolutions(options);
  if (worker->device.is_cuda()) set_tf32(worker->precision == Precision::kTf32);

  torch::manual_seed(static_cast<uint64_t>(options.seed));
  const bool draws = options.init.empty() && !options.values_follow;
  worker->model = draws ? models::build(options.model) : models::lay_out(options.model);
  if (options.values_follow) options.ddp.init_sync = false;
  worker->parameters = worker->model.parameter_count();
  smooth_labels(worker->model, options.label_smoothing);
  load_weights(*worker, options);
  options.optimizer = parallel::settle_groups(*worker, options.optimizer);
  const std::optional<torch::ScalarType> narrow = narrow_type(*worker, options);
  // In host memory: the device may not have room for them.
  std::vector<optim::NamedTensor> full_weights;
  if (narrow) full_weights = values_of(*worker->model.module);
  if (narrow) narrow_weights(*worker->model.module, *narrow);
  worker->model.module->to(worker->device);
  if (options.type != torch::kFloat32) worker->model.module->to(options.type);
  bool channels_last =
      worker->device.is_cuda() && options.compute.channels_last && is_image_model(worker->model);
  worker->place = placement(*worker, narrow.value_or(options.type), channels_last);
  worker->autocast = narrow ? Precision::kFp32 : worker->precision;

  if (channels_last) spread_channels_last(*worker->model.module);
  worker->maker = parallel::place_model(*worker, options);
  worker->optimizer = parallel::make_optimizer(*worker, options.optimizer);
  fill_masters(*worker, std::exchange(full_weights, {}));
  worker->scaler = optim::GradScaler({.enabled = worker->precision == Precision::kFp16});
  worker->segments = fit_recomputation(*worker, options);
  worker->strategy = worker->maker->strategy();
  // Ranks start identically and then draw their own random numbers.
  if (options.links.rank > 0)
    torch::manual_seed(static_cast<uint64_t>(options.seed) +
                       0x9E3779B97F4A7C15u * static_cast<uint64_t>(options.links.rank));
}

}  // namespace

WorkerOptions on_ranks(WorkerOptions options, comm::Communicator& ranks) {
  options.links = {};
  options.links.world = &ranks;
  options.links.workers = ranks.size();
  options.links.rank = ranks.rank();
  return options;
}

WorkerOptions WorkerOptions::alone() const {
  WorkerOptions options = *this;
  static_cast<parallel::Choices&>(options) = {};
  options.links = {};
  options.sync_batchnorm = false;
  return options;
}

std::unique_ptr<Worker> make_worker(const WorkerOptions& given) {
  check_budget(given);
  auto worker = std::make_unique<Worker>();
  worker->options = std::make_unique<WorkerOptions>(given);
  WorkerOptions& options = *worker->options;
  options.cuda_graph = options.compute.cuda_graph;
  options.another_model = [model = options.model, smoothing = options.label_smoothing] {
    models::Model another = models::lay_out(model);
    smooth_labels(another, smoothing);
    return another;
  };
  options.sample_inputs = [&model = worker->model] { return inputs_of_one_sample(model); };
  try {
    build(worker.get(), options);
  } catch (const std::exception& error) {
    if (!is_out_of_memory(error)) throw;
    throw OutOfMemory(describe_out_of_memory(error, "while the model was made", *worker, options));
  }
  return worker;
}

}  // namespace yoke::engine
