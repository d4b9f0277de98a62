#include "cli/torch/collab_peer.h"

#include "cli/collab_run.h"
#include "cli/torch/worker_options.h"
#include "yoke/base/error.h"
#include "yoke/engine/stop_signal.h"
#include "yoke/optim/schedule.h"

namespace yoke::cli {
namespace {

collab::Identity identity_of(const collab::CollabOptions& options) {
  return options.identity.empty() ? collab::Identity::random()
                                  : collab::Identity::from_file(options.identity);
}

data::DataOptions one_by_one(data::DataOptions options) {
  options.batch_size = 1;
  options.drop_last = false;
  return options;
}

}  // namespace

RunOrder::RunOrder(const data::Dataset& dataset, data::DataOptions options, int64_t seed)
    : dataset_(dataset) {
  sampler_.emplace(dataset.size(), one_by_one(std::move(options)), static_cast<uint64_t>(seed));
}

parallel::CollabReplicaOptions::Samples RunOrder::gather(int64_t first, int64_t count) const {
  std::vector<int64_t> indices;
  for (int64_t i = first; i < first + count; ++i)
    indices.push_back(sampler_->indices_at({i / dataset_.size(), i % dataset_.size()}).at(0));
  data::Batch batch = dataset_.gather(indices);
  return {std::move(batch.inputs), std::move(batch.target)};
}

CollabPeer::CollabPeer(Configuration& configuration, const std::string& init)
    : configuration_(configuration), identity_(identity_of(configuration.values.collab)) {
  const RunConfig& config = configuration_.values;
  check_collab(configuration_);
  engine::WorkerOptions options = worker_options(config).alone();
  options.init = init;
  worker_ = engine::make_worker(options);
  samples_ = data::open(config.data, data::Split::kTrain, worker_->model.sample,
                        static_cast<uint64_t>(config.train.loop.seed));
  order_.emplace(*samples_, config.data, config.train.loop.seed);
  steps_ = collab_steps(config, samples_->size());
  parallel::CollabReplicaOptions replica;
  replica.batch = config.data.batch_size;
  replica.samples = [this](int64_t first, int64_t count) { return order_->gather(first, count); };
  replica.learning_rate = [this](int64_t step) { return learning_rate(step); };
  trainer_ = parallel::make_collab_trainer(*worker_->strategy, worker_->model, std::move(replica));
}

double CollabPeer::learning_rate(int64_t step) const {
  optim::ScheduleContext context;
  context.total_steps = steps_;
  context.steps_per_epoch =
      static_cast<double>(samples_->size()) / static_cast<double>(config().collab.target_batch);
  return optim::learning_rate(config().train.schedule, config().train.optimizer.lr, context, step);
}

nlohmann::json CollabPeer::run() const {
  nlohmann::json run = common_keys(configuration_);
  run["parameters"] = worker_->parameters;
  run["samples"] = samples_->size();
  return run;
}

collab::PeerOptions CollabPeer::options() const {
  const collab::CollabOptions& collab = config().collab;
  collab::PeerOptions options;
  options.run = run();
  options.listen = net::parse_address(collab.listen);
  options.timeout = collab.timeout;
  options.reconnect = collab.quorum_timeout;
  options.link = collab::parse_bandwidth(collab.bandwidth);
  options.stopped = [] { return engine::requested_stop() != 0; };
  return options;
}

void CollabPeer::save_state(const std::filesystem::path& file, int64_t epoch) const {
  std::vector<std::byte> bytes = trainer_->state();
  const auto count = static_cast<int64_t>(bytes.size());
  checkpoint::save_tensors(file, {{"state", torch::from_blob(bytes.data(), {count}, torch::kUInt8)},
                                  {"step", torch::full({1}, epoch, torch::kInt64)}});
}

int64_t CollabPeer::load_state(const std::filesystem::path& file) {
  std::map<std::string, torch::Tensor> saved;
  for (auto& [name, tensor] : checkpoint::load_tensors(file).tensors) saved[name] = tensor;
  const int64_t bytes = trainer_->state_bytes();
  const torch::Tensor &state = saved["state"], &step = saved["step"];
  if (!state.defined() || state.scalar_type() != torch::kUInt8 || state.numel() != bytes || !step.defined() ||
      step.scalar_type() != torch::kInt64 || step.numel() != 1)
    throw ConfigError(
        "{} is not the state of a peer of this model ({} bytes). Next: remove it, or use its out.dir.",
        file.string(), bytes);
  const auto epoch = step.item<int64_t>();
  if (epoch < 0 || epoch > steps_)
    throw ConfigError("{} is of step {}, the run has {} steps.", file.string(), epoch, steps_);
  const auto* first = static_cast<const std::byte*>(state.const_data_ptr());
  trainer_->restore({first, first + bytes}, epoch);
  return epoch;
}

std::vector<checkpoint::NamedTensor> CollabPeer::weights() const {
  std::vector<checkpoint::NamedTensor> all;
  for (const auto& item : worker_->model.module->named_parameters())
    all.emplace_back(item.key(), item.value());
  for (const auto& item : worker_->model.module->named_buffers()) all.emplace_back(item.key(), item.value());
  return all;
}

}  // namespace yoke::cli
