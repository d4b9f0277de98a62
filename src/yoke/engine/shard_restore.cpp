#include "yoke/engine/shard_restore.h"

#include <map>

#include "yoke/base/error.h"
#include "yoke/base/fault.h"
#include "yoke/checkpoint/pieces.h"
#include "yoke/engine/in_flight.h"
#include "yoke/engine/shard_moves.h"
#include "yoke/parallel/common/gather_json.h"

namespace yoke::engine {
namespace {

using parallel::StatePiece;

constexpr int kRestoreTag = 65533;

// Numbers of a list, by its name: those that a rank gives, or all.
using Lists = std::map<std::string, std::map<int64_t, double>>;

struct Plan {
  std::vector<Move> moves;
  std::vector<std::vector<ShardOutline>> offers;  // by rank
  std::vector<ShardOutline> wants;                // by rank
  Lists lists;
};

nlohmann::json lists_of(const std::vector<const HeldShard*>& given) {
  nlohmann::json lists = nlohmann::json::array();
  for (const HeldShard* one : given)
    for (const ShardPart& part : one->outline->parts) {
      if (part.places.empty()) continue;
      torch::Tensor values = values_of(one->block, part).to(torch::kFloat64);
      const double* first = values.const_data_ptr<double>();
      lists.push_back({{"name", part.name},
                       {"places", part.places},
                       {"values", std::vector<double>(first, first + values.numel())}});
    }
  return lists;
}

void add_lists(const nlohmann::json& text, Lists& into) {
  for (const nlohmann::json& list : text) {
    auto places = list.at("places").get<std::vector<int64_t>>();
    auto values = list.at("values").get<std::vector<double>>();
    for (size_t i = 0; i < std::min(places.size(), values.size()); ++i)
      into[list.at("name").get<std::string>()][places[i]] = values[i];
  }
}

// Everybody tells what it gives and needs.
Plan make_plan(const std::vector<const HeldShard*>& given, const ShardOutline& want,
               comm::Communicator& comm) {
  nlohmann::json offers = nlohmann::json::array();
  for (const HeldShard* one : given) offers.push_back(to_json(*one->outline));
  const nlohmann::json all =
      parallel::gather_json({{"offers", offers}, {"want", to_json(want)}, {"lists", lists_of(given)}}, &comm);
  Plan plan;
  for (const nlohmann::json& one : all) {
    plan.offers.emplace_back();
    for (const nlohmann::json& offer : one.at("offers")) plan.offers.back().push_back(parse_outline(offer));
    plan.wants.push_back(parse_outline(one.at("want")));
    add_lists(one.at("lists"), plan.lists);
  }
  plan.moves = plan_moves(plan.offers, plan.wants);
  return plan;
}

const ShardPart& source_of(const Plan& plan, const Move& move) {
  return plan.offers[static_cast<size_t>(move.from)][move.offer].parts[move.part];
}

int64_t bytes_of(const Plan& plan, const Move& move) {
  return (move.end - move.begin) * static_cast<int64_t>(c10::elementSize(source_of(plan, move).type));
}

// What one rank gives another, in the order of the moves.
torch::Tensor parcel(const Plan& plan, const std::vector<const HeldShard*>& given, int from, int to) {
  std::vector<torch::Tensor> parts = {make_block(0)};
  for (const Move& move : plan.moves) {
    if (move.from != from || move.to != to) continue;
    const ShardPart& source = source_of(plan, move);
    torch::Tensor values = values_of(given[move.offer]->block, source);
    parts.push_back(values.narrow(0, move.begin - source.begin, move.end - move.begin).view(torch::kUInt8));
  }
  return torch::cat(parts);
}

// Runs of what this rank needs, filled from parcels.
class Runs {
 public:
  Runs(const Plan& plan, int rank) : plan_(plan), rank_(rank), want_(plan.wants[static_cast<size_t>(rank)]) {
    runs_.resize(want_.parts.size());
  }

  void take(const torch::Tensor& parcel, int from) {
    int64_t at = 0;
    for (const Move& move : plan_.moves) {
      if (move.from != from || move.to != rank_) continue;
      const ShardPart& want = want_.parts[move.want];
      const ShardPart& source = source_of(plan_, move);
      torch::Tensor& run = runs_[move.want];
      if (!run.defined())
        run = torch::empty({want.end - want.begin}, torch::TensorOptions().dtype(source.type));
      const int64_t bytes = bytes_of(plan_, move);
      // A parcel's numbers need not be aligned.
      run.narrow(0, move.begin - want.begin, move.end - move.begin)
          .view(torch::kUInt8)
          .copy_(parcel.narrow(0, at, bytes));
      at += bytes;
    }
  }

  const torch::Tensor& run(size_t want) const { return runs_[want]; }

 private:
  const Plan& plan_;
  int rank_;
  const ShardOutline& want_;
  std::vector<torch::Tensor> runs_;
};

int64_t exchange(const Plan& plan, const std::vector<const HeldShard*>& given, comm::Communicator& comm,
                 Runs& runs) {
  std::vector<int64_t> expected(static_cast<size_t>(comm.size()));
  for (const Move& move : plan.moves)
    if (move.to == comm.rank()) expected[static_cast<size_t>(move.from)] += bytes_of(plan, move);
  std::vector<torch::Tensor> received(expected.size());
  int64_t total = 0;
  {
    InFlight transfers(comm, "shards of the last epoch");
    for (int peer = 0; peer < comm.size(); ++peer) {
      const int64_t bytes = expected[static_cast<size_t>(peer)];
      if (peer == comm.rank() || bytes == 0) continue;
      total += bytes;
      received[static_cast<size_t>(peer)] = make_block(bytes);
      transfers.receive(received[static_cast<size_t>(peer)], peer, kRestoreTag);
    }
    fault::at(fault::Point::kElasticRebuild);
    for (int peer = 0; peer < comm.size(); ++peer) {
      if (peer == comm.rank()) continue;
      torch::Tensor out = parcel(plan, given, comm.rank(), peer);
      if (out.numel() > 0) transfers.send(out, peer, kRestoreTag);
    }
    transfers.wait();
  }
  for (size_t peer = 0; peer < received.size(); ++peer)
    if (received[peer].defined()) runs.take(received[peer], static_cast<int>(peer));
  runs.take(parcel(plan, given, comm.rank(), comm.rank()), comm.rank());
  return total;
}

void fill(const StatePiece& piece, const ShardPart& want, const torch::Tensor& run) {
  torch::Tensor values = run.to(piece.values.scalar_type());
  if (!piece.is_whole()) {
    piece.values.copy_(values.view_as(piece.values));
    return;
  }
  checkpoint::put(piece.values, {piece.shape, -1, {}, 0, want.end, want.channels_last}, values);
}

void fill_list(const StatePiece& piece, const Lists& lists) {
  auto found = lists.find(piece.name);
  torch::Tensor values = torch::zeros({static_cast<int64_t>(piece.places.size())}, torch::kFloat64);
  for (size_t i = 0; found != lists.end() && i < piece.places.size(); ++i)
    if (auto one = found->second.find(piece.places[i]); one != found->second.end())
      values[static_cast<int64_t>(i)] = one->second;
  piece.values.copy_(values);
}

}  // namespace

int64_t restore_shards(const Holdings& own, const ShardChoice& choice, const StepFacts& facts, Worker& worker,
                       comm::Communicator& comm) {
  torch::NoGradGuard no_grad;
  std::map<std::string, torch::Tensor> common(facts.buffers.begin(), facts.buffers.end());
  std::vector<StatePiece> needed;
  for (StatePiece& piece : worker.strategy->state()) {
    auto found = piece.kind == StatePiece::Kind::kOptimizer ? common.end() : common.find(piece.name);
    if (found != common.end())
      piece.values.copy_(found->second);
    else
      needed.push_back(std::move(piece));
  }
  const std::vector<const HeldShard*> given = given_by(comm.rank(), own, choice);
  const ShardOutline want = outline_of(needed);
  const Plan plan = make_plan(given, want, comm);
  Runs runs(plan, comm.rank());
  const int64_t received = exchange(plan, given, comm, runs);
  for (size_t i = 0; i < needed.size(); ++i) {
    if (needed[i].is_list())
      fill_list(needed[i], plan.lists);
    else if (runs.run(i).defined())
      fill(needed[i], want.parts[i], runs.run(i));
  }
  return received;
}

}  // namespace yoke::engine
