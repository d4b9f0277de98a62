#include "yoke/engine/shard_keeper.h"

#include <set>
#include <utility>

#include "yoke/base/fault.h"
#include "yoke/engine/in_flight.h"
#include "yoke/engine/survivor.h"
#include "yoke/parallel/common/gather_json.h"

namespace yoke::engine {
namespace {

using parallel::ShardPlace;
using parallel::StatePiece;

constexpr int kCopyTag = 65532;
constexpr int64_t kMessage = 4 << 20;
constexpr size_t kMostInFlight = 4;  // messages that are sent, which need memory

nlohmann::json to_json(const ShardPlace& place) {
  return {{"index", place.index}, {"count", place.count}, {"kind", place.kind}};
}

ShardPlace parse_place(const nlohmann::json& text) {
  return {text.at("index"), text.at("count"), text.at("kind")};
}

}  // namespace

ShardKeeper::ShardKeeper(Worker& worker, const data::Loader& loader, const Engine& engine,
                         comm::Communicator& comm, ShardKeeperOptions options)
    : worker_(worker),
      loader_(loader),
      engine_(engine),
      comm_(comm),
      options_(std::move(options)),
      ring_(copy_ring(options_.machines.empty() ? std::vector<std::string>(static_cast<size_t>(comm.size()))
                                                : options_.machines)),
      shard_(parallel::shard_of(*worker.strategy)) {
  keep_buffers();
  const ShardOutline own = outline_of(shard_);
  const nlohmann::json told = {{"outline", to_json(own)},
                               {"place", to_json(parallel::place_of_shard(*worker.strategy))}};
  for (const nlohmann::json& one : parallel::gather_json(told, &comm_)) {
    outlines_.push_back(std::make_shared<ShardOutline>(parse_outline(one.at("outline"))));
    places_.push_back(parse_place(one.at("place")));
  }
  now_ = facts_now();
  if (!copies()) return;
  saved_ = make_block(own.bytes);
  const bool receives = copies(owner(), comm_.rank());
  for (Copy* copy : {&older_, &newer_})
    if (receives) copy->block = make_block(outlines_[static_cast<size_t>(owner())]->bytes);
  renew_copies();
  comm_.barrier({.name = "first copies"}).wait();  // what the last epoch left is dropped now
}

bool ShardKeeper::copies(int from, int to) const {
  return place(from).index >= 0 && place(from).index != place(to).index;
}

void ShardKeeper::keep_buffers() {
  torch::NoGradGuard no_grad;
  for (StatePiece& piece : shard_) {
    if (piece.kind != StatePiece::Kind::kBuffer) continue;
    buffers_.push_back({piece.values, piece.values.clone()});
    piece.values = buffers_.back().kept;
  }
}

std::shared_ptr<const StepFacts> ShardKeeper::facts_now() const {
  torch::NoGradGuard no_grad;
  auto facts = std::make_shared<StepFacts>();
  const Finished& at = engine_.finished();
  facts->step = at.step;
  facts->rest = rest_of(at, loader_.position(), worker_);
  std::set<std::string> sharded;
  for (const auto& outline : outlines_)  // of all ranks: others own parameters that are whole here
    for (const ShardPart& part : outline->parts)
      if (!part.optimizer) sharded.insert(part.name);
  for (const StatePiece& piece : worker_.strategy->state())
    if (piece.kind != StatePiece::Kind::kOptimizer && !sharded.contains(piece.name))
      facts->buffers.emplace_back(piece.name, piece.values.detach().cpu().clone());
  return facts;
}

void ShardKeeper::before_update() {
  updating_ = true;
  if (!copies()) return;
  const ShardOutline& own = *outlines_[static_cast<size_t>(comm_.rank())];
  pack(shard_, own, 0, own.parts.size(), saved_);
  before_ = now_;
}

void ShardKeeper::tick(int64_t, double) {
  torch::NoGradGuard no_grad;
  for (Buffer& one : buffers_) one.kept.copy_(one.live);
  now_ = facts_now();
  updating_ = false;
  if (copies()) renew_copies();
}

void ShardKeeper::renew_copies() {
  std::swap(older_, newer_);
  newer_.facts = nullptr;
  InFlight transfers(comm_, "copies of shards");
  const bool receives = copies(owner(), comm_.rank());
  if (receives) receive(owner(), newer_.block, transfers);
  if (copies(comm_.rank(), keeper())) send(keeper());
  transfers.wait();
  if (receives) newer_.facts = now_;
}

void ShardKeeper::receive(int from, const torch::Tensor& block, InFlight& transfers) {
  const ShardOutline& outline = *outlines_[static_cast<size_t>(from)];
  for (const auto& [first, last] : messages_of(outline, kMessage)) {
    const int64_t begin = outline.parts[first].offset;
    const int64_t end = outline.parts[last - 1].offset + outline.parts[last - 1].bytes();
    transfers.receive(block.narrow(0, begin, end - begin), from, kCopyTag);
  }
}

void ShardKeeper::send(int to) {
  const ShardOutline& outline = *outlines_[static_cast<size_t>(comm_.rank())];
  InFlight sent(comm_, "copies of shards");
  for (const auto& [first, last] : messages_of(outline, kMessage)) {
    const int64_t begin = outline.parts[first].offset;
    const int64_t end = outline.parts[last - 1].offset + outline.parts[last - 1].bytes();
    torch::Tensor message = make_block(end - begin);
    pack(shard_, outline, first, last, message);
    fault::at(fault::Point::kElasticCopy);
    sent.send(message, to, kCopyTag);
    copied_ += end - begin;
    sent.wait(kMostInFlight);
  }
  sent.wait();
}

void ShardKeeper::hand_over(const std::vector<bool>& leaves) {
  auto heir_of = [&](int rank) {
    int other = ring_.keeper_of[static_cast<size_t>(rank)];
    for (int i = 0; i < comm_.size(); ++i, other = (other + 1) % comm_.size())
      if (!leaves[static_cast<size_t>(other)]) return other;
    return -1;
  };
  InFlight transfers(comm_, "copies of shards");
  std::vector<HeldShard> handed;
  for (int rank = 0; rank < comm_.size(); ++rank) {
    if (!leaves[static_cast<size_t>(rank)] || heir_of(rank) != comm_.rank()) continue;
    if (!copies(rank, comm_.rank())) continue;
    const auto& outline = outlines_[static_cast<size_t>(rank)];
    torch::Tensor block = make_block(outline->bytes);
    receive(rank, block, transfers);
    handed.push_back({options_.epoch, place(rank), /*own=*/false, outline, block, now_});
  }
  const int heir = leaves[static_cast<size_t>(comm_.rank())] ? heir_of(comm_.rank()) : -1;
  if (heir >= 0 && copies(comm_.rank(), heir)) send(heir);
  transfers.wait();
  handed_ = std::move(handed);
}

Holdings ShardKeeper::holdings() {
  Holdings all;
  all.finished = engine_.finished().step;
  all.started = engine_.finished().started;
  const auto& own = outlines_[static_cast<size_t>(comm_.rank())];
  auto add = [&](bool mine, const torch::Tensor& block, const std::shared_ptr<const StepFacts>& facts) {
    if (!facts) return;
    const int rank = mine ? comm_.rank() : owner();
    if (place(rank).index < 0) return;
    all.shards.push_back(
        {options_.epoch, place(rank), mine, outlines_[static_cast<size_t>(rank)], block, facts});
  };
  if (!updating_) {
    torch::Tensor block = make_block(own->bytes);
    pack(shard_, *own, 0, own->parts.size(), block);
    add(true, block, now_);
  }
  add(true, saved_, before_);
  add(false, older_.block, older_.facts);
  add(false, newer_.block, newer_.facts);
  all.shards.insert(all.shards.end(), handed_.begin(), handed_.end());
  return all;
}

int64_t ShardKeeper::memory_bytes() const {
  int64_t bytes = 0;
  for (const torch::Tensor& block : {saved_, older_.block, newer_.block})
    if (block.defined()) bytes += static_cast<int64_t>(block.nbytes());
  return bytes;
}

}  // namespace yoke::engine
