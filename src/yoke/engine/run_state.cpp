#include "yoke/engine/run_state.h"

#include <charconv>
#include <cmath>

#include "yoke/base/error.h"
#include "yoke/base/json_text.h"
#include "yoke/base/log.h"
#include "yoke/checkpoint/pieces.h"
#include "yoke/checkpoint/random_state.h"
#include "yoke/checkpoint/team.h"
#include "yoke/checkpoint/weights.h"
#include "yoke/compute/conv_path.h"
#include "yoke/config/changes.h"
#include "yoke/engine/circumstances.h"
#include "yoke/engine/gather_json.h"
#include "yoke/optim/finite.h"
#include "yoke/parallel/ddp/zero/sharded_state.h"
#include "yoke/parallel/pipeline/stage_state.h"

namespace yoke::engine {
namespace {

// What differs between ranks, by rank: random generators and measured choices. With them each tells whether
// its part of the state is finite.
nlohmann::json states_of_ranks(const Worker& worker, const checkpoint::State& part, int64_t step,
                               comm::Communicator* replicas) {
  nlohmann::json here = {{"random", checkpoint::random_state(worker.device)},
                         {"tuning", compute::ConvChoices::global().to_json()}};
  std::optional<std::string> bad = optim::first_non_finite(part.model);
  if (!bad) bad = optim::first_non_finite(part.optimizer);
  if (bad) here["non_finite"] = *bad;
  nlohmann::json all = gather_json(here, replicas, worker.device);
  for (const nlohmann::json& one : all)
    if (one.contains("non_finite"))
      throw ConfigError(
          "step {}: {} holds numbers that are not finite, so this state is not saved. If training made them, "
          "resume from the last checkpoint with a lower train.lr or with train.clip_norm; if they were there "
          "at "
          "the start, use other weights.",
          step, one["non_finite"].get<std::string>());
  return all;
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

// What this rank of a pipeline writes: ranks of one stage share what the stage has.
void part_of_stage(Worker& worker, checkpoint::State& state) {
  const parallel::PipelineStage& stage = *worker.stage;
  int copies = stage.layout.copies, ranks = stage.layout.request.replicas_of(stage.place.stage) * copies;
  int rank = stage.place.replica * copies + stage.place.copy;
  parallel::StageState whole = parallel::stage_state(stage, worker.optimizer->state());
  state.model = checkpoint::share_of(whole.parameters, rank, ranks);
  if (rank == 0) state.model.insert(state.model.end(), whole.buffers.begin(), whole.buffers.end());
  state.optimizer = checkpoint::share_of(whole.optimizer, rank, ranks);
}

// What this one of the replicas writes.
void part_of_replica(Worker& worker, comm::Communicator* replicas, checkpoint::State& state) {
  int rank = replicas != nullptr ? replicas->rank() : 0, ranks = replicas != nullptr ? replicas->size() : 1;
  state.model = checkpoint::share_of(named_parameters(*worker.model.module), rank, ranks);
  // Replicas may have statistics of their own: the first one's are kept (Strategy::share_buffers).
  for (const auto& item : worker.model.module->named_buffers())
    if (rank == 0) state.model.emplace_back(item.key(), item.value());
  state.optimizer = worker.shards ? state_in_pieces(*worker.shards, *worker.optimizer)
                                  : checkpoint::share_of(worker.optimizer->state(), rank, ranks);
}

// Numbers that depend on nothing but seed, step and rank.
void draw_anew(int64_t step, int rank) {
  torch::manual_seed(at::detail::getDefaultCPUGenerator().current_seed() +
                     0x9E3779B97F4A7C15u *
                         (static_cast<uint64_t>(step) * 4096 + static_cast<uint64_t>(rank) + 1));
}

int64_t data_replicas(const Worker& worker, const comm::Communicator* ranks) {
  if (worker.stage) return worker.stage->layout.copies;
  return ranks != nullptr ? ranks->size() : 1;
}

// How the stages cut the model, and which one each rank had: for people (`yoke ckpt ls`).
nlohmann::json stages_of_ranks(const Worker& worker) {
  nlohmann::json ranks = nlohmann::json::array();
  for (int rank = 0; worker.stage && rank < worker.stage->layout.ranks(); ++rank)
    ranks.push_back(worker.stage->layout.stage_of_rank(rank));
  return ranks;
}

nlohmann::json blocks_of_stages(const Worker& worker) {
  nlohmann::json stages = nlohmann::json::array();
  if (!worker.stage) return stages;
  const parallel::PipelineLayout& layout = worker.stage->layout;
  for (size_t part = 0; part < layout.blocks.size(); ++part)
    stages.push_back({{"stage", static_cast<int>(part) % layout.request.stages},
                      {"first", worker.model.blocks[layout.blocks[part].first].name},
                      {"last", worker.model.blocks[layout.blocks[part].end - 1].name}});
  return stages;
}

// The saved tensors of this rank's part of the model.
std::vector<optim::NamedTensor> part_of_model(const Worker& worker,
                                              const std::vector<optim::NamedTensor>& whole) {
  if (!worker.stage) return whole;
  std::vector<optim::NamedTensor> part;
  for (const auto& [name, own] : parallel::held_tensors(*worker.stage))
    for (const auto& saved : whole)
      if (saved.first == name) part.push_back(saved);
  return part;
}

std::vector<optim::NamedTensor> own_tensors(const Worker& worker) {
  return worker.stage ? parallel::held_tensors(*worker.stage) : named_tensors(*worker.model.module);
}

// Weights under foreign names are matched with the whole model's; what other stages hold goes nowhere.
std::vector<optim::NamedTensor> places_for_weights(const Worker& worker) {
  std::vector<optim::NamedTensor> places = named_tensors(*worker.model.module);
  if (!worker.stage) return places;
  for (size_t i = 0; i < places.size(); ++i)
    if (!worker.stage->tensors[i].held_by(worker.stage->place.stage))
      places[i].second = torch::empty(places[i].second.sizes(), places[i].second.options());
  return places;
}

}  // namespace

std::vector<optim::NamedTensor> named_tensors(const torch::nn::Module& module) {
  std::vector<optim::NamedTensor> tensors = named_parameters(module);
  for (const auto& item : module.named_buffers()) tensors.emplace_back(item.key(), item.value());
  return tensors;
}

checkpoint::State collect_state(Worker& worker, const Progress& progress, const std::string& configuration,
                                comm::Communicator* replicas) {
  checkpoint::State state;
  worker.strategy->drain();
  if (worker.stage)
    part_of_stage(worker, state);
  else
    part_of_replica(worker, replicas, state);
  state.rest = {
      {"step", progress.step},
      {"samples", progress.samples},
      {"position", {{"epoch", progress.position.epoch}, {"sample", progress.position.sample}}},
      {"loss", std::isfinite(progress.loss) ? nlohmann::json(progress.loss) : nullptr},
      {"scaler",
       {{"scale", worker.scaler.current_scale()}, {"growth_tracker", worker.scaler.growth_tracker()}}},
      {"ranks", states_of_ranks(worker, state, progress.step, replicas)},
      {"replicas", data_replicas(worker, replicas)},
      {"stages", blocks_of_stages(worker)},
      {"stages_of_ranks", stages_of_ranks(worker)},
      {"circumstances", circumstances(worker)},
      {"configuration", configuration},
  };
  return state;
}

data::Position saved_position(const nlohmann::json& rest, const std::string& where) {
  const nlohmann::json& position = rest.at("position");
  if (position.contains("sample")) return {position.at("epoch"), position.at("sample")};
  // Older ones count global batches, whose size only the configuration tells; with servers not even that.
  const auto saved = config::values_of(rest.at("configuration").get<std::string>());
  auto whole = [&](const char* key) -> int64_t {
    auto found = saved.find(key);
    int64_t value = 0;
    if (found != saved.end())
      std::from_chars(found->second.data(), found->second.data() + found->second.size(), value);
    return value;
  };
  const int64_t batch_size = whole("data.batch_size");
  auto sync = saved.find("parallel.sync");
  const std::string how = sync != saved.end() ? sync->second : "";
  if (batch_size < 1 || how == "\"ps\"")
    throw CheckpointError(
        "{}: its position counts batches of a size that it does not tell. It was written by an older "
        "version: "
        "start from its weights with --resume never --init {}.",
        where, where);
  const bool threads = how == "\"threads\"";
  const int64_t parts =
      rest.at("replicas").get<int64_t>() * (threads ? std::max<int64_t>(1, whole("parallel.data")) : 1);
  return {position.at("epoch"), position.at("batch").get<int64_t>() * batch_size * parts};
}

Progress restore_state(const checkpoint::Loaded& loaded, Worker& worker, data::Loader& loader,
                       comm::Communicator* replicas) {
  torch::NoGradGuard no_grad;
  if (loaded.state.rest.contains("weights_only")) {  // made by `yoke ckpt import`
    checkpoint::copy_weights(loaded.state.model, places_for_weights(worker), loaded.path.string());
    return {};
  }
  checkpoint::restore_into(part_of_model(worker, loaded.state.model), own_tensors(worker),
                           loaded.path.string() + ", model");
  std::string what = loaded.path.string() + ", optimizer";
  std::vector<optim::NamedTensor> own_state = worker.optimizer->state();
  if (worker.shards)
    parallel::restore_pieces(loaded.state.optimizer, *worker.shards, *worker.optimizer, what);
  else
    checkpoint::restore_into(
        worker.stage ? parallel::part_of_optimizer(*worker.stage, loaded.state.optimizer, own_state)
                     : loaded.state.optimizer,
        own_state, what);
  const nlohmann::json& rest = loaded.state.rest;
  try {
    worker.scaler.restore(rest.at("scaler").at("scale"), rest.at("scaler").at("growth_tracker"));
    Progress progress{rest.at("step"), rest.at("samples")};
    if (rest.contains("loss") && rest["loss"].is_number()) progress.loss = rest["loss"];
    int64_t ranks = replicas != nullptr ? replicas->size() : 1;
    auto ranks_before = static_cast<int64_t>(rest.at("ranks").size());
    int64_t shards = data_replicas(worker, replicas), shards_before = rest.at("replicas");
    int rank = replicas != nullptr ? replicas->rank() : 0;
    if (ranks == ranks_before && shards == shards_before) {
      const nlohmann::json& own = rest.at("ranks").at(static_cast<size_t>(rank));
      checkpoint::set_random_state(own.at("random"), worker.device);
      compute::ConvChoices::global().import_json(own.at("tuning"));
    } else {
      draw_anew(progress.step, rank);
      if (rank == 0) log::info("this checkpoint is of {} ranks; going on with {}", ranks_before, ranks);
    }
    loader.seek(saved_position(rest, loaded.path.string()));
    progress.position = loader.position();
    return progress;
  } catch (const nlohmann::json::exception& error) {
    throw CheckpointError(
        "{}: its state lacks a field ({}). It was written by another version; start with --resume never.",
        loaded.path.string(), json_problem(error));
  }
}

}  // namespace yoke::engine
