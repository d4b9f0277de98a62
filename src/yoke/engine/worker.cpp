#include "yoke/engine/worker.h"

#include <torch/cuda.h>
#include <torch/nn/modules/batchnorm.h>

#include <filesystem>
#include <map>
#include <utility>

#include "yoke/base/log.h"
#include "yoke/checkpoint/weights.h"
#include "yoke/compute/allocator.h"
#include "yoke/compute/conv_path.h"
#include "yoke/compute/determinism.h"
#include "yoke/compute/device.h"
#include "yoke/engine/fit_budget.h"
#include "yoke/engine/out_of_memory.h"
#include "yoke/engine/pipeline_worker.h"
#include "yoke/engine/run_state.h"
#include "yoke/parallel/common/one_device.h"
#include "yoke/parallel/common/slow_motion.h"
#include "yoke/parallel/data_parallel/threads_strategy.h"
#include "yoke/parallel/ddp/ddp_strategy.h"
#include "yoke/parallel/ddp/sync_batchnorm.h"
#include "yoke/parallel/ddp/zero/zero_strategy.h"
#include "yoke/parallel/one_device/graphed_device.h"
#include "yoke/parallel/ps/ps_strategy.h"

namespace yoke::engine {
namespace {

bool is_image_model(const models::Model& model) {
  return model.sample.kind == SampleKind::kImage;
}

// bf16 on CUDA: the weights themselves are narrow, with fp32 masters in the optimizer, which saves autocast's
// casts. BatchNorm keeps fp32: its statistics need it and its kernels take mixed types.
void narrow_weights(torch::nn::Module& module) {
  for (const auto& part : module.modules()) {
    if (part->as<torch::nn::BatchNorm2d>() != nullptr) continue;
    for (auto& item : part->named_parameters(/*recurse=*/false))
      item.value().set_data(item.value().to(torch::kBFloat16));
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

std::vector<optim::NamedTensor> copies_of(const torch::nn::Module& module) {
  std::vector<optim::NamedTensor> copies;
  for (const auto& item : module.named_parameters())
    copies.emplace_back(item.key(), item.value().detach().clone());
  return copies;
}

// The masters start from the weights as they were before rounding.
void fill_masters(Worker& worker, const std::vector<optim::NamedTensor>& weights) {
  torch::NoGradGuard no_grad;
  std::map<std::string, torch::Tensor> full(weights.begin(), weights.end());
  if (full.empty()) return;
  if (!worker.shards) {
    for (auto& [name, tensor] : worker.optimizer->state())
      if (name.rfind("master/", 0) == 0) tensor.copy_(full.at(name.substr(7)));
    return;
  }
  std::map<std::string, torch::Tensor> masters;
  for (auto& [name, tensor] : worker.optimizer->state()) masters.emplace(name, tensor);
  for (size_t i = 0; i < worker.shards->pieces().size(); ++i) {
    const parallel::Piece& piece = worker.shards->pieces()[i];
    auto master = masters.find("master/" + worker.shards->owned()[i].first);
    if (master == masters.end()) continue;
    torch::Tensor run =
        worker.shards->run_of(piece.parameter, full.at(worker.shards->parameters()[piece.parameter].first));
    master->second.copy_(run.narrow(0, piece.begin, piece.end - piece.begin));
  }
}

// Throws ConfigError that names what does not go together with parallel.zero.
void check_zero(const WorkerOptions& options, const Worker& worker) {
  auto refuse = [&](const std::string& what, const char* instead) {
    throw ConfigError("parallel.zero = {} does not go with {}. {}", options.zero, what, instead);
  };
  if (options.optimizer.optimizer == "lbfgs")
    refuse("train.optimizer = lbfgs", "It needs all gradients at once: take sgd, adamw or adagrad.");
  if (options.ddp.hook != "none") refuse("ddp.hook", "Its buckets are not averaged as a whole.");
  if (options.ddp.find_unused || options.ddp.static_graph)
    refuse("parameters without a gradient (ddp.find_unused, ddp.static_graph)", "Set parallel.zero = 0.");
  if (worker.model.sample.kind == SampleKind::kSparse)
    refuse("sparse gradients", "They are small: set parallel.zero = 0.");
}

void load_weights(Worker& worker, const WorkerOptions& options) {
  torch::NoGradGuard no_grad;
  if (options.init.empty()) return;
  checkpoint::copy_weights(checkpoint::load_weights(options.init), named_tensors(*worker.model.module),
                           options.init);
}

// The other replicas of this process. They get their values from the first.
std::vector<models::Model> followers_of(const Worker& worker, const WorkerOptions& options) {
  if (options.optimizer.optimizer == "lbfgs" || worker.model.sample.kind == SampleKind::kSparse)
    throw ConfigError("parallel.sync = threads does not go with {}. Take --nproc 1.",
                      options.optimizer.optimizer == "lbfgs" ? "train.optimizer = lbfgs" : "sparse samples");
  std::vector<models::Model> followers;
  for (int64_t i = 1; i < options.threads; ++i) {
    followers.push_back(models::lay_out(options.model));
    torch::Device device = worker.device;
    if (device.is_cuda())
      device = torch::Device(
          torch::kCUDA, static_cast<c10::DeviceIndex>(i % std::max<int64_t>(1, torch::cuda::device_count())));
    followers.back().module->to(device);
  }
  return followers;
}

// [slowdown] for replicas that average gradients, or one device alone.
void slow_down(Worker& worker, const WorkerOptions& options) {
  const plan::DelayLaw law = plan::parse_delay_law(options.slowdown.law);
  if (law.kind == plan::DelayLaw::Kind::kNone) return;
  if (worker.device.is_cuda())
    throw ConfigError("slowdown.law = \"{}\" is for CPUs: a GPU does not wait when its host does.",
                      options.slowdown.law);
  const int rank = options.replicas != nullptr ? options.replicas->rank() : 0;
  const int size = options.replicas != nullptr ? options.replicas->size() : 1;
  if (plan::parse_slow_workers("slowdown.workers", options.slowdown.workers, size)[static_cast<size_t>(rank)])
    worker.model =
        parallel::in_slow_motion(worker.model, law, static_cast<uint64_t>(options.slowdown.seed), rank);
}

std::unique_ptr<parallel::Strategy> make_strategy(Worker& worker, const WorkerOptions& options) {
  parallel::OneDeviceOptions strategy;
  strategy.device = worker.device;
  strategy.precision = worker.autocast;
  strategy.clip_norm = options.optimizer.clip_norm;
  strategy.keep_batches = options.optimizer.optimizer == "lbfgs";
  strategy.place = worker.place;
  strategy.segments = worker.segments;
  if (options.replicas != nullptr && options.replicas->size() > 1 && options.sync_batchnorm) {
    // On a communicator of their own, so that small messages do not wait behind buckets of gradients.
    worker.norms = options.replicas->split(0, options.replicas->rank(), "norms");
    convert_sync_batchnorm(*worker.model.module, *worker.norms);
  }
  if (options.ps)
    return std::make_unique<parallel::PsStrategy>(worker.model, *worker.optimizer, worker.scaler,
                                                  std::move(strategy), *options.ps);
  if (worker.shards)
    return std::make_unique<parallel::ZeroStrategy>(worker.model, *worker.optimizer, worker.scaler,
                                                    std::move(strategy), *options.replicas, options.ddp,
                                                    *worker.shards, options.zero);
  if (options.replicas != nullptr && options.replicas->size() > 1)
    return std::make_unique<parallel::DdpStrategy>(worker.model, *worker.optimizer, worker.scaler,
                                                   std::move(strategy), *options.replicas, options.ddp);
  if (options.threads > 1)
    return std::make_unique<parallel::ThreadsStrategy>(worker.model, followers_of(worker, options),
                                                       *worker.optimizer, worker.scaler, std::move(strategy));
  bool graph = worker.device.is_cuda() && options.compute.cuda_graph && options.accumulate == 1 &&
               options.equal_batches && !strategy.keep_batches && worker.precision != Precision::kFp16 &&
               worker.model.sample.kind != SampleKind::kSparse;
  if (graph)
    return std::make_unique<parallel::GraphedDevice>(worker.model, *worker.optimizer, worker.scaler,
                                                     std::move(strategy));
  return std::make_unique<parallel::OneDevice>(worker.model, *worker.optimizer, worker.scaler,
                                               std::move(strategy));
}

// A home that cannot be written costs repeatability between runs, not the run.
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

// What is measured may come out differently in the next run.
void choose_convolutions(const WorkerOptions& options) {
  bool fixed = options.compute.deterministic && options.compute.conv == "auto";
  compute::ConvChoices::global().set_mode(fixed ? "onednn" : options.compute.conv);
  remember_choices(options.tuning_file);
}

// Ranks of one machine take its GPUs in turn.
std::string device_of(const WorkerOptions& options) {
  if (options.compute.device != "cuda" || options.local_ranks == 1) return options.compute.device;
  auto devices = std::max<int64_t>(1, static_cast<int64_t>(torch::cuda::device_count()));
  return fmt::format("cuda:{}", options.local_rank % devices);
}

void build(Worker* worker, const WorkerOptions& options) {
  worker->device = compute::resolve_device(device_of(options));
  worker->precision = parse_precision(options.compute.precision);
  compute::set_threads(options.compute.threads, options.local_ranks);
  compute::keep_freed_memory();
  compute::set_deterministic(options.compute.deterministic);
  choose_convolutions(options);
  if (worker->device.is_cuda()) set_tf32(worker->precision == Precision::kTf32);

  torch::manual_seed(static_cast<uint64_t>(options.seed));
  worker->model = options.init.empty() ? models::build(options.model) : models::lay_out(options.model);
  load_weights(*worker, options);
  worker->model.module->to(worker->device);
  if (options.type != torch::kFloat32) worker->model.module->to(options.type);
  bool narrow = worker->device.is_cuda() && worker->precision == Precision::kBf16;
  bool channels_last =
      worker->device.is_cuda() && options.compute.channels_last && is_image_model(worker->model);
  worker->place = placement(*worker, narrow ? torch::kBFloat16 : options.type, channels_last);
  worker->autocast = narrow ? Precision::kFp32 : worker->precision;

  std::vector<optim::NamedTensor> full_weights;
  if (narrow) full_weights = copies_of(*worker->model.module);
  if (narrow) narrow_weights(*worker->model.module);
  if (channels_last) spread_channels_last(*worker->model.module);
  if (options.pipeline.stages > 1) make_stage(*worker, options);
  std::vector<optim::NamedTensor> parameters;
  if (worker->stage) parameters = worker->stage->versions.newest();
  for (const auto& item : worker->model.module->named_parameters())
    if (!worker->stage) parameters.emplace_back(item.key(), item.value());
  if (options.zero > 0 && options.replicas != nullptr && options.replicas->size() > 1) {
    check_zero(options, *worker);
    worker->shards =
        std::make_unique<parallel::Shards>(*worker->model.module, *options.replicas, options.ddp);
    parameters = worker->shards->owned();
  }
  worker->optimizer = optim::make(options.optimizer, std::move(parameters));
  fill_masters(*worker, std::exchange(full_weights, {}));
  worker->scaler = optim::GradScaler({.enabled = worker->precision == Precision::kFp16});
  worker->segments = fit_recomputation(*worker, options);
  if (worker->stage) make_pipeline(*worker, options, worker->segments);
  if (!worker->stage && !options.ps) slow_down(*worker, options);
  if (!worker->stage) worker->strategy = make_strategy(*worker, options);
  // Ranks start alike and then draw numbers of their own.
  const comm::Communicator* ranks = worker->stage ? options.pipeline.world : options.replicas;
  int rank = options.ps ? options.ps->messenger->rank() : ranks != nullptr ? ranks->rank() : 0;
  if (rank > 0)
    torch::manual_seed(static_cast<uint64_t>(options.seed) +
                       0x9E3779B97F4A7C15u * static_cast<uint64_t>(rank));
}

}  // namespace

WorkerOptions on_ranks(WorkerOptions options, comm::Communicator& ranks) {
  PipelineSetup& pipeline = options.pipeline;
  if (pipeline.stages == 1) {
    options.replicas = ranks.size() > 1 ? &ranks : nullptr;
    return options;
  }
  int workers = std::accumulate(pipeline.replicas.begin(), pipeline.replicas.end(), 0);
  pipeline.world = &ranks;
  pipeline.copies = ranks.size() / (workers > 0 ? workers : pipeline.stages);
  return options;
}

std::unique_ptr<Worker> make_worker(const WorkerOptions& options) {
  check_budget(options);
  auto worker = std::make_unique<Worker>();
  try {
    build(worker.get(), options);
  } catch (const std::exception& error) {
    if (!is_out_of_memory(error)) throw;
    throw OutOfMemory(describe_out_of_memory(error, "while the model was made", *worker, options));
  }
  return worker;
}

}  // namespace yoke::engine
