#include "yoke/engine/shard_moves.h"

#include <algorithm>

#include "yoke/base/error.h"

namespace yoke::engine {
namespace {

struct Source {
  int rank = 0;
  size_t offer = 0, part = 0;
  const ShardPart* at = nullptr;
};

using Sources = std::map<std::string, std::vector<Source>>;

Sources by_key(const std::vector<std::vector<ShardOutline>>& offers) {
  Sources sources;
  for (size_t rank = 0; rank < offers.size(); ++rank)
    for (size_t offer = 0; offer < offers[rank].size(); ++offer) {
      const std::vector<ShardPart>& parts = offers[rank][offer].parts;
      for (size_t i = 0; i < parts.size(); ++i)
        if (parts[i].places.empty())
          sources[parts[i].key()].push_back({static_cast<int>(rank), offer, i, &parts[i]});
    }
  return sources;
}

// Who gives element `at`, preferably `to` itself; null: nobody.
const Source* giver_of(const std::vector<Source>& sources, const ShardPart& want, int64_t at, int to) {
  const Source* giver = nullptr;
  for (const Source& source : sources) {
    if (source.at->shape != want.shape || at < source.at->begin || at >= source.at->end) continue;
    if (giver == nullptr || (source.rank == to && giver->rank != to)) giver = &source;
  }
  return giver;
}

// Which of two a run has, narrow weights with fp32 masters or fp32 weights, may depend on its ranks.
const std::vector<Source>* find(const Sources& sources, const ShardPart& want) {
  const std::string master = "master/";
  auto at = [&](const std::string& key) {
    auto found = sources.find(key);
    return found == sources.end() ? nullptr : &found->second;
  };
  const std::vector<Source>* same = at(want.key());
  if (same != nullptr && same->front().at->type == want.type) return same;
  if (!want.optimizer) return at("o:" + master + want.name);
  if (same == nullptr && want.name.starts_with(master)) return at("m:" + want.name.substr(master.size()));
  return nullptr;
}

}  // namespace

std::vector<Move> plan_moves(const std::vector<std::vector<ShardOutline>>& offers,
                             const std::vector<ShardOutline>& wants) {
  const Sources sources = by_key(offers);
  std::vector<Move> moves;
  for (size_t to = 0; to < wants.size(); ++to)
    for (size_t i = 0; i < wants[to].parts.size(); ++i) {
      const ShardPart& want = wants[to].parts[i];
      if (!want.places.empty()) continue;
      const std::vector<Source>* found = find(sources, want);
      int64_t at = want.begin;
      while (at < want.end && found != nullptr) {
        const Source* source = giver_of(*found, want, at, static_cast<int>(to));
        if (source == nullptr) break;
        const int64_t end = std::min(want.end, source->at->end);
        moves.push_back({source->rank, static_cast<int>(to), source->offer, source->part, i, at, end});
        at = end;
      }
      if (at < want.end)
        throw CheckpointError(
            "the ranks of the last epoch hold {} of the {} elements of '{}' that rank {} needs: its model or "
            "optimizer is another one.",
            at - want.begin, want.end - want.begin, want.name, to);
    }
  return moves;
}

}  // namespace yoke::engine
