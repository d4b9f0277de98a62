#include "yoke/engine/state_pieces.h"

#include <algorithm>
#include <map>

#include "yoke/base/error.h"
#include "yoke/checkpoint/pieces.h"
#include "yoke/checkpoint/team.h"
#include "yoke/comm/tensors/tensors.h"
#include "yoke/parallel/common/gather_json.h"

namespace yoke::engine {
namespace {

using Kind = parallel::StatePiece::Kind;
using parallel::StatePiece;
using Named = std::vector<optim::NamedTensor>;

constexpr int kGatherTag = 65534;

bool is_first(Worker& worker) {
  comm::Communicator* team = worker.strategy->team();
  return team == nullptr || team->rank() == 0;
}

// Assembles lists with one number per parameter: every rank knows those of its own parameters.
Named whole_lists(const std::vector<StatePiece>& state, comm::Communicator* team) {
  nlohmann::json own = nlohmann::json::object();
  std::map<std::string, torch::TensorOptions> types;
  for (const StatePiece& piece : state) {
    if (!piece.is_list()) continue;
    torch::Tensor values = piece.values.to(torch::kCPU, torch::kFloat64);
    own[piece.name] = {{"places", piece.places},
                       {"all", piece.shape.at(0)},
                       {"type", static_cast<int>(piece.values.scalar_type())},
                       {"values", std::vector<double>(values.const_data_ptr<double>(),
                                                      values.const_data_ptr<double>() + values.numel())}};
  }
  Named lists;
  std::map<std::string, torch::Tensor> known;
  for (const nlohmann::json& one : parallel::gather_json(own, team))
    for (const auto& [name, list] : one.items()) {
      if (!known.contains(name)) {
        auto type = static_cast<torch::ScalarType>(list.at("type").get<int>());
        known[name] = torch::zeros({list.at("all").get<int64_t>()}, torch::TensorOptions().dtype(type));
        lists.emplace_back(name, known[name]);
      }
      auto places = list.at("places").get<std::vector<int64_t>>();
      auto values = list.at("values").get<std::vector<double>>();
      for (size_t i = 0; i < places.size(); ++i) known[name][places[i]] = values[i];
    }
  return lists;
}

// What a rank writes of the pieces of one kind.
void add_shares(const std::vector<StatePiece>& state, Kind kind, Named& into) {
  std::map<std::pair<int, int>, Named> groups;  // by holder
  for (const StatePiece& piece : state) {
    if (piece.kind != kind || piece.is_list() || piece.holder < 0) continue;
    if (kind == Kind::kBuffer) {
      // Replicas may have their own statistics: the first one's are saved (Strategy::share_buffers).
      if (piece.holder == 0) into.emplace_back(checkpoint::piece_name(piece.name, piece), piece.values);
      continue;
    }
    groups[{piece.holders, piece.holder}].emplace_back(checkpoint::piece_name(piece.name, piece),
                                                       piece.values);
  }
  for (const auto& [place, list] : groups) {
    Named share = checkpoint::share_of(list, place.second, place.first);
    into.insert(into.end(), share.begin(), share.end());
  }
}

torch::Tensor find(const std::map<std::string, torch::Tensor>& saved, const std::string& name,
                   const std::string& where) {
  auto found = saved.find(name);
  if (found == saved.end())
    throw CheckpointError(
        "{}: '{}' is missing: it is of another model or optimizer. Start with --resume never.", where, name);
  return found->second;
}

void fill(const StatePiece& piece, const torch::Tensor& whole, const std::string& where) {
  if (piece.is_list()) {
    if (whole.numel() != piece.shape.at(0))
      throw CheckpointError("{}: '{}' is of {} parameters, this run's model has {}.", where, piece.name,
                            whole.numel(), piece.shape.at(0));
    torch::Tensor places = torch::tensor(piece.places, torch::kInt64);
    piece.values.copy_(whole.to(torch::kCPU).index_select(0, places));
    return;
  }
  if (whole.sizes() != torch::IntArrayRef(piece.shape) || whole.scalar_type() != piece.values.scalar_type())
    throw CheckpointError("{}: '{}' is {} of {}, this run's {} of {}. It is of another model.", where,
                          piece.name, c10::str(whole.sizes()), c10::toString(whole.scalar_type()),
                          c10::str(torch::IntArrayRef(piece.shape)),
                          c10::toString(piece.values.scalar_type()));
  piece.values.copy_(checkpoint::cut(whole, piece).view_as(piece.values));
}

using ByName = std::map<std::string, torch::Tensor>;

ByName by_name(const Named& tensors) {
  return {tensors.begin(), tensors.end()};
}

// Runs with fp32 weights and with narrow ones that have fp32 masters continue each other: which of the two a
// run has may depend on the number of its ranks.
void match_masters(const std::vector<StatePiece>& state, ByName& model, ByName& optimizer) {
  const std::string prefix = "master/";
  for (const StatePiece& piece : state) {
    if (piece.kind != Kind::kOptimizer || !piece.name.starts_with(prefix)) continue;
    auto weight = model.find(piece.name.substr(prefix.size()));
    if (weight != model.end() && weight->second.scalar_type() == torch::kFloat)
      optimizer.emplace(piece.name, weight->second);
  }
  for (const StatePiece& piece : state) {
    auto weight = piece.kind == Kind::kParameter ? model.find(piece.name) : model.end();
    if (weight == model.end() || weight->second.scalar_type() == piece.values.scalar_type()) continue;
    auto master = optimizer.find(prefix + piece.name);
    if (master != optimizer.end()) weight->second = master->second.to(piece.values.scalar_type());
  }
}

std::vector<int64_t> flat_ranges(const StatePiece& piece) {
  std::vector<int64_t> numbers;
  for (const checkpoint::PieceRange& range : piece.ranges)
    numbers.insert(numbers.end(), {range.offset, range.extent});
  return numbers;
}

nlohmann::json description(const StatePiece& piece) {
  return {{"name", piece.name},
          {"type", static_cast<int>(piece.values.scalar_type())},
          {"kind", static_cast<int>(piece.kind)},
          {"shape", piece.shape},
          {"dim", piece.dim},
          {"ranges", flat_ranges(piece)},
          {"begin", piece.begin},
          {"end", piece.end},
          {"channels_last", piece.channels_last},
          {"sizes", piece.values.sizes().vec()}};
}

StatePiece described(const nlohmann::json& text) {
  StatePiece piece;
  piece.name = text.at("name");
  piece.kind = static_cast<Kind>(text.at("kind").get<int>());
  piece.shape = text.at("shape").get<std::vector<int64_t>>();
  piece.dim = text.at("dim");
  auto ranges = text.at("ranges").get<std::vector<int64_t>>();
  for (size_t i = 0; i + 1 < ranges.size(); i += 2) piece.ranges.push_back({ranges[i], ranges[i + 1]});
  piece.begin = text.at("begin");
  piece.end = text.at("end");
  piece.channels_last = text.at("channels_last");
  auto type = static_cast<torch::ScalarType>(text.at("type").get<int>());
  piece.values =
      torch::empty(text.at("sizes").get<std::vector<int64_t>>(), torch::TensorOptions().dtype(type));
  return piece;
}

}  // namespace

checkpoint::State part_to_save(Worker& worker) {
  std::vector<StatePiece> state = worker.strategy->state();
  checkpoint::State part;
  add_shares(state, Kind::kParameter, part.model);
  add_shares(state, Kind::kBuffer, part.model);
  Named lists = whole_lists(state, worker.strategy->team());
  if (is_first(worker)) part.optimizer = std::move(lists);
  add_shares(state, Kind::kOptimizer, part.optimizer);
  return part;
}

checkpoint::State state_here(Worker& worker) {
  std::vector<StatePiece> pieces = worker.strategy->state();
  checkpoint::State state;
  state.optimizer = whole_lists(pieces, nullptr);
  for (const StatePiece& piece : pieces) {
    if (piece.is_list()) continue;
    YOKE_CHECK(piece.is_whole(), "'{}' is not held whole on this rank", piece.name);
    Named& list = piece.kind == Kind::kOptimizer ? state.optimizer : state.model;
    list.emplace_back(piece.name, piece.values.detach());
  }
  return state;
}

void restore_pieces(const checkpoint::State& whole, Worker& worker, const std::string& where) {
  torch::NoGradGuard no_grad;
  ByName model = by_name(whole.model), optimizer = by_name(whole.optimizer);
  std::vector<StatePiece> state = worker.strategy->state();
  match_masters(state, model, optimizer);
  for (const StatePiece& piece : state) {
    const bool of_optimizer = piece.kind == Kind::kOptimizer;
    const std::string what = where + (of_optimizer ? ", optimizer" : ", model");
    fill(piece, find(of_optimizer ? optimizer : model, piece.name, what), what);
  }
  const Named own = named_tensors(*worker.model.module);
  for (const auto& [name, tensor] : whole.model)
    if (std::none_of(own.begin(), own.end(), [&](const auto& one) { return one.first == name; }))
      throw CheckpointError("{}, model: '{}' is not in this run's model. It is of another model.", where,
                            name);
  const bool keeps_state = std::any_of(state.begin(), state.end(),
                                       [](const StatePiece& one) { return one.kind == Kind::kOptimizer; });
  if (!whole.optimizer.empty() && !state.empty() && !keeps_state && worker.optimizer->state().empty())
    throw CheckpointError(
        "{}, optimizer: '{}' is not in this run's: it is of another optimizer. Start with --resume never.",
        where, whole.optimizer.front().first);
}

Named whole_model(Worker& worker) {
  torch::NoGradGuard no_grad;
  if (worker.strategy->team() == nullptr) return named_tensors(*worker.model.module);
  std::vector<StatePiece> own;
  for (StatePiece& piece : worker.strategy->state())
    if (piece.kind != Kind::kOptimizer && piece.holder == 0) own.push_back(std::move(piece));
  std::map<std::string, torch::Tensor> wholes;
  auto add = [&](const StatePiece& piece) {
    if (piece.is_whole()) {
      wholes[piece.name] = piece.values.detach();
      return;
    }
    auto found = wholes.find(piece.name);
    if (found == wholes.end())
      found = wholes.emplace(piece.name, torch::empty(piece.shape, piece.values.options())).first;
    checkpoint::put(found->second, piece, piece.values);
  };
  comm::Communicator* team = worker.strategy->team();
  nlohmann::json told = nlohmann::json::array();
  for (const StatePiece& piece : own) told.push_back(description(piece));
  nlohmann::json all = parallel::gather_json(told, team);
  if (team != nullptr && team->rank() != 0) {
    for (const StatePiece& piece : own)
      comm::send(*team, piece.values.detach().contiguous(), 0, kGatherTag, piece.name.substr(0, 40));
    return {};
  }
  for (const StatePiece& piece : own) add(piece);
  for (size_t rank = 1; rank < all.size(); ++rank)
    for (const nlohmann::json& text : all[rank]) {
      StatePiece piece = described(text);
      piece.values = piece.values.to(worker.device);
      comm::receive(*team, piece.values, static_cast<int>(rank), kGatherTag, piece.name.substr(0, 40));
      add(piece);
    }
  Named model;
  for (const auto& [name, tensor] : named_tensors(*worker.model.module)) {
    auto found = wholes.find(name);
    YOKE_CHECK(found != wholes.end(), "no rank holds '{}'", name);
    model.emplace_back(name, found->second);
  }
  return model;
}

Named named_tensors(const torch::nn::Module& module) {
  Named tensors;
  for (const auto& item : module.named_parameters()) tensors.emplace_back(item.key(), item.value().detach());
  for (const auto& item : module.named_buffers()) tensors.emplace_back(item.key(), item.value());
  return tensors;
}

}  // namespace yoke::engine
