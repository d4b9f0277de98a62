#include "yoke/engine/run_state.h"

#include "yoke/base/error.h"
#include "yoke/base/log.h"
#include "yoke/checkpoint/pieces.h"
#include "yoke/checkpoint/random_state.h"
#include "yoke/checkpoint/team.h"
#include "yoke/checkpoint/weights.h"
#include "yoke/comm/tensors/tensors.h"
#include "yoke/compute/conv_path.h"
#include "yoke/parallel/ddp/zero/sharded_state.h"

namespace yoke::engine {
namespace {

// What differs between ranks, by rank: random generators and measured choices.
nlohmann::json states_of_ranks(const Worker& worker, comm::Communicator* replicas) {
  nlohmann::json here = {{"random", checkpoint::random_state(worker.device)},
                         {"tuning", compute::ConvChoices::global().to_json()}};
  std::string own = here.dump();
  if (replicas == nullptr) return {nlohmann::json::parse(own)};
  auto length = static_cast<int64_t>(own.size());
  torch::Tensor bytes = torch::from_blob(own.data(), {length}, torch::kUInt8).clone().to(worker.device);
  torch::Tensor all_lengths = comm::all_gather(
      *replicas, torch::tensor({length}, torch::kInt64).to(worker.device), "state of a rank: length");
  all_lengths = all_lengths.cpu();
  std::vector<int64_t> lengths(all_lengths.const_data_ptr<int64_t>(),
                               all_lengths.const_data_ptr<int64_t>() + replicas->size());
  torch::Tensor all = comm::all_gather(*replicas, bytes, "state of a rank", lengths).cpu();
  nlohmann::json states = nlohmann::json::array();
  const auto* at = reinterpret_cast<const char*>(all.const_data_ptr<uint8_t>());
  for (int64_t one : lengths) {
    states.push_back(nlohmann::json::parse(at, at + one));
    at += one;
  }
  return states;
}

std::vector<optim::NamedTensor> named_parameters(const torch::nn::Module& module) {
  std::vector<optim::NamedTensor> tensors;
  for (const auto& item : module.named_parameters()) tensors.emplace_back(item.key(), item.value().detach());
  return tensors;
}

// This rank's pieces; what is whole is written by the first one.
std::vector<optim::NamedTensor> state_in_pieces(const parallel::Shards& shards, optim::Optimizer& optimizer) {
  parallel::OwnedState owned = parallel::owned_state(shards, optimizer);
  std::vector<optim::NamedTensor> state;
  if (shards.comm().rank() == 0) state = owned.whole;
  for (const auto& [name, piece, values] : owned.parts) {
    const torch::Tensor& parameter = shards.parameters()[piece.parameter].second;
    bool channels_last = parameter.dim() == 4 && !parameter.is_contiguous();
    state.emplace_back(checkpoint::piece_name(name, piece.begin, piece.end, channels_last), values);
  }
  return state;
}

// Numbers that depend on nothing but seed, step and rank.
void draw_anew(int64_t step, int rank) {
  torch::manual_seed(at::detail::getDefaultCPUGenerator().current_seed() +
                     0x9E3779B97F4A7C15u *
                         (static_cast<uint64_t>(step) * 4096 + static_cast<uint64_t>(rank) + 1));
}

}  // namespace

std::vector<optim::NamedTensor> named_tensors(const torch::nn::Module& module) {
  std::vector<optim::NamedTensor> tensors = named_parameters(module);
  for (const auto& item : module.named_buffers()) tensors.emplace_back(item.key(), item.value());
  return tensors;
}

checkpoint::State collect_state(Worker& worker, const data::Loader& loader, Progress progress,
                                const std::string& configuration, comm::Communicator* replicas) {
  data::Position position = loader.position();
  checkpoint::State state;
  worker.strategy->drain();
  int rank = replicas != nullptr ? replicas->rank() : 0, ranks = replicas != nullptr ? replicas->size() : 1;
  state.model = checkpoint::share_of(named_parameters(*worker.model.module), rank, ranks);
  // Replicas may have statistics of their own: the first one's are kept.
  for (const auto& item : worker.model.module->named_buffers())
    if (rank == 0) state.model.emplace_back(item.key(), item.value());
  state.optimizer = worker.shards ? state_in_pieces(*worker.shards, *worker.optimizer)
                                  : checkpoint::share_of(worker.optimizer->state(), rank, ranks);
  state.rest = {
      {"step", progress.step},
      {"samples", progress.samples},
      {"position", {{"epoch", position.epoch}, {"batch", position.batch}}},
      {"scaler",
       {{"scale", worker.scaler.current_scale()}, {"growth_tracker", worker.scaler.growth_tracker()}}},
      {"ranks", states_of_ranks(worker, replicas)},
      {"replicas", replicas != nullptr ? replicas->size() : 1},
      {"configuration", configuration},
  };
  return state;
}

Progress restore_state(const checkpoint::Loaded& loaded, Worker& worker, data::Loader& loader,
                       comm::Communicator* replicas) {
  torch::NoGradGuard no_grad;
  if (loaded.state.rest.contains("weights_only")) {  // made by `yoke ckpt import`
    checkpoint::copy_weights(loaded.state.model, named_tensors(*worker.model.module), loaded.path.string());
    return {};
  }
  checkpoint::restore_into(loaded.state.model, named_tensors(*worker.model.module),
                           loaded.path.string() + ", model");
  std::string what = loaded.path.string() + ", optimizer";
  if (worker.shards)
    parallel::restore_pieces(loaded.state.optimizer, *worker.shards, *worker.optimizer, what);
  else
    checkpoint::restore_into(loaded.state.optimizer, worker.optimizer->state(), what);
  const nlohmann::json& rest = loaded.state.rest;
  try {
    worker.scaler.restore(rest.at("scaler").at("scale"), rest.at("scaler").at("growth_tracker"));
    Progress progress{rest.at("step"), rest.at("samples")};
    int64_t ranks = replicas != nullptr ? replicas->size() : 1, ranks_before = rest.at("replicas");
    int rank = replicas != nullptr ? replicas->rank() : 0;
    int64_t batch = rest.at("position").at("batch");
    if (ranks == ranks_before) {
      const nlohmann::json& own = rest.at("ranks").at(static_cast<size_t>(rank));
      checkpoint::set_random_state(own.at("random"), worker.device);
      compute::ConvChoices::global().import_json(own.at("tuning"));
    } else {
      draw_anew(progress.step, rank);
      batch = batch * ranks_before / ranks;
      if (rank == 0) log::info("this checkpoint is of {} ranks; going on with {}", ranks_before, ranks);
    }
    loader.seek({rest.at("position").at("epoch"), std::min(batch, loader.batches_per_epoch() - 1)});
    return progress;
  } catch (const nlohmann::json::exception& error) {
    throw CheckpointError(
        "{}: its state lacks a field ({}). It was written by another version; start with --resume never.",
        loaded.path.string(), error.what());
  }
}

}  // namespace yoke::engine
