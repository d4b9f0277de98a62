#include "yoke/engine/run_state.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "yoke/base/error.h"
#include "yoke/base/json_text.h"
#include "yoke/base/log.h"
#include "yoke/checkpoint/pieces.h"
#include "yoke/checkpoint/random_state.h"
#include "yoke/checkpoint/weights.h"
#include "yoke/compute/conv_path.h"
#include "yoke/config/changes.h"
#include "yoke/engine/circumstances.h"
#include "yoke/optim/finite.h"
#include "yoke/parallel/common/gather_json.h"

namespace yoke::engine {
namespace {

// Per-rank values: random generators and measured choices. Each rank also reports whether its part of the
// state is finite.
nlohmann::json states_of_ranks(const Worker& worker, const checkpoint::State& part, int64_t step) {
  nlohmann::json here = {{"random", checkpoint::random_state(worker.device)},
                         {"tuning", compute::ConvChoices::global().to_json()}};
  std::optional<std::string> bad = optim::first_non_finite(part.model);
  if (!bad) bad = optim::first_non_finite(part.optimizer);
  if (bad) here["non_finite"] = *bad;
  nlohmann::json all = parallel::gather_json(here, worker.strategy->team());
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

// Numbers that depend on seed, step and rank only.
void draw_anew(int64_t step, int rank) {
  torch::manual_seed(at::detail::getDefaultCPUGenerator().current_seed() +
                     0x9E3779B97F4A7C15u *
                         (static_cast<uint64_t>(step) * 4096 + static_cast<uint64_t>(rank) + 1));
}

// Weights under foreign names are matched with the whole model's; those of other ranks are ignored.
void restore_weights(const std::vector<optim::NamedTensor>& weights, Worker& worker,
                     const std::string& where) {
  std::vector<optim::NamedTensor> places = named_tensors(*worker.model.module);
  std::vector<parallel::StatePiece> state = worker.strategy->state();
  auto piece_of = [&](const std::string& name) {
    return std::find_if(state.begin(), state.end(), [&](const auto& one) {
      return one.name == name && one.kind != parallel::StatePiece::Kind::kOptimizer;
    });
  };
  for (auto& [name, tensor] : places) {
    auto piece = piece_of(name);
    if (piece != state.end() && piece->is_whole()) continue;
    auto shape = piece != state.end() ? piece->shape : tensor.sizes().vec();
    tensor = torch::empty(shape, tensor.options());
  }
  checkpoint::copy_weights(weights, places, where);
  for (const auto& [name, tensor] : places) {
    auto piece = piece_of(name);
    if (piece != state.end() && !piece->is_whole()) piece->values.copy_(checkpoint::cut(tensor, *piece));
  }
}

}  // namespace

checkpoint::State collect_state(Worker& worker, const Progress& progress, const std::string& configuration) {
  worker.strategy->drain();
  checkpoint::State state = part_to_save(worker);
  state.rest = {
      {"step", progress.step},
      {"samples", progress.samples},
      {"position", {{"epoch", progress.position.epoch}, {"sample", progress.position.sample}}},
      {"loss", std::isfinite(progress.loss) ? nlohmann::json(progress.loss) : nullptr},
      {"scaler",
       {{"scale", worker.scaler.current_scale()}, {"growth_tracker", worker.scaler.growth_tracker()}}},
      {"ranks", states_of_ranks(worker, state, progress.step)},
      {"replicas", worker.strategy->share().parts},
      {"circumstances", circumstances(worker)},
      {"configuration", configuration},
  };
  if (nlohmann::json layout = worker.strategy->layout(); layout.is_object()) state.rest.update(layout);
  return state;
}

data::Position saved_position(const nlohmann::json& rest, const std::string& where) {
  const nlohmann::json& position = rest.at("position");
  if (position.contains("sample")) return {position.at("epoch"), position.at("sample")};
  // Older checkpoints count global batches, whose size only the configuration knows; with servers not even
  // that.
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
                       const std::function<void()>& fill) {
  torch::NoGradGuard no_grad;
  if (loaded.state.rest.contains("weights_only")) {  // created by `yoke ckpt import`
    restore_weights(loaded.state.model, worker, loaded.path.string());
    return {};
  }
  if (fill)
    fill();
  else
    restore_pieces(loaded.state, worker, loaded.path.string());
  const nlohmann::json& rest = loaded.state.rest;
  try {
    worker.scaler.restore(rest.at("scaler").at("scale"), rest.at("scaler").at("growth_tracker"));
    Progress progress{rest.at("step"), rest.at("samples")};
    if (rest.contains("loss") && rest["loss"].is_number()) progress.loss = rest["loss"];
    comm::Communicator* team = worker.strategy->team();
    const int64_t parts = worker.strategy->share().parts, parts_before = rest.at("replicas");
    const int64_t ranks = team != nullptr ? team->size() : 1;
    const auto ranks_before = static_cast<int64_t>(rest.at("ranks").size());
    const bool saved_here = team != nullptr || worker.strategy->share().part == 0;
    const int64_t rank = team != nullptr ? team->rank() : worker.strategy->share().part;
    const bool regrouped = rest.contains("regrouped");
    if (ranks == ranks_before && parts == parts_before && saved_here && !regrouped) {
      const nlohmann::json& own = rest.at("ranks").at(static_cast<size_t>(rank));
      checkpoint::set_random_state(own.at("random"), worker.device);
      compute::ConvChoices::global().import_json(own.at("tuning"));
    } else {
      draw_anew(progress.step, static_cast<int>(rank));
      if (regrouped) {
        compute::ConvChoices::global().import_json(rest.at("tuning"));
        compute::ConvChoices::global().spare_measuring();
      }
      if (rank == 0 && !regrouped)
        log::info("this checkpoint is of {} ranks; resuming with {}", ranks_before, ranks);
    }
    loader.seek(saved_position(rest, loaded.path.string()));
    progress.position = loader.position();
    worker.strategy->restored(progress.step);
    return progress;
  } catch (const nlohmann::json::exception& error) {
    throw CheckpointError(
        "{}: its state lacks a field ({}). It was written by another version; start with --resume never.",
        loaded.path.string(), json_problem(error));
  }
}

}  // namespace yoke::engine
