#include "yoke/engine/shard_holdings.h"

#include <algorithm>
#include <map>

#include "yoke/base/error.h"
#include "yoke/comm/tensors/tensors.h"
#include "yoke/engine/survivor.h"
#include "yoke/parallel/common/gather_json.h"

namespace yoke::engine {
namespace {

// The shards of one step, as one epoch cut it.
struct Set {
  std::string kind;
  std::vector<int> owners, copies;  // by owner: rank that has it; -1: none
  std::vector<int> missing() const {
    std::vector<int> list;
    for (size_t owner = 0; owner < owners.size(); ++owner)
      if (owners[owner] < 0 && copies[owner] < 0) list.push_back(static_cast<int>(owner));
    return list;
  }
};

using Sets = std::map<std::pair<int64_t, int64_t>, Set>;  // by step and epoch

Sets sort_out(const nlohmann::json& all) {
  Sets sets;
  for (size_t rank = 0; rank < all.size(); ++rank)
    for (const nlohmann::json& one : all[rank].at("shards")) {
      Set& set = sets[{one.at("step"), one.at("epoch")}];
      const auto count = one.at("count").get<size_t>(), index = one.at("index").get<size_t>();
      set.kind = one.at("kind");
      set.owners.resize(count, -1);
      set.copies.resize(count, -1);
      if (index >= count) throw CommError("rank {} holds shard {} of {}", rank, index, count);
      int& place = (one.at("own").get<bool>() ? set.owners : set.copies)[index];
      if (place < 0) place = static_cast<int>(rank);
    }
  return sets;
}

}  // namespace

int64_t ShardChoice::repeated() const {
  if (!complete()) return 0;
  return std::max<int64_t>(newest - step, interrupted ? 1 : 0);
}

nlohmann::json describe(const Holdings& holdings) {
  nlohmann::json shards = nlohmann::json::array();
  for (const HeldShard& one : holdings.shards)
    shards.push_back({{"step", one.facts->step},
                      {"epoch", one.epoch},
                      {"kind", one.place.kind},
                      {"count", one.place.count},
                      {"index", one.place.index},
                      {"own", one.own}});
  return {{"shards", shards}, {"finished", holdings.finished}, {"started", holdings.started}};
}

ShardChoice choose_shards(const nlohmann::json& all) {
  ShardChoice choice;
  int64_t started = -1;
  for (const nlohmann::json& one : all) {
    choice.newest = std::max(choice.newest, one.at("finished").get<int64_t>());
    started = std::max(started, one.at("started").get<int64_t>());
  }
  choice.interrupted = started > choice.newest;
  const Sets sets = sort_out(all);
  for (auto at = sets.rbegin(); at != sets.rend(); ++at) {
    const Set& set = at->second;
    std::vector<int> missing = set.missing();
    if (!missing.empty()) {
      if (choice.lost.empty()) {
        choice.lost = std::move(missing);
        choice.kind = set.kind;
      }
      continue;
    }
    std::tie(choice.step, choice.epoch) = at->first;
    choice.kind = set.kind;
    choice.interrupted = choice.interrupted || started > choice.step;
    for (size_t owner = 0; owner < set.owners.size(); ++owner) {
      const bool alive = set.owners[owner] >= 0;
      choice.giver.push_back(alive ? set.owners[owner] : set.copies[owner]);
      if (!alive) choice.rebuilt.push_back(static_cast<int>(owner));
    }
    choice.lost.clear();
    break;
  }
  return choice;
}

ShardChoice agree_on_shards(const Holdings& own, comm::Communicator& comm) {
  return choose_shards(parallel::gather_json(describe(own), &comm));
}

std::vector<const HeldShard*> given_by(int rank, const Holdings& own, const ShardChoice& choice) {
  std::vector<const HeldShard*> given;
  for (size_t owner = 0; owner < choice.giver.size(); ++owner) {
    if (choice.giver[owner] != rank) continue;
    const HeldShard* best = nullptr;
    for (const HeldShard& one : own.shards) {
      const bool chosen = one.epoch == choice.epoch && one.facts->step == choice.step &&
                          one.place.index == static_cast<int>(owner);
      if (chosen && (best == nullptr || one.own)) best = &one;
    }
    YOKE_CHECK(best != nullptr, "rank {} has no shard {} of step {}", rank, owner, choice.step);
    given.push_back(best);
  }
  return given;
}

StepFacts share_facts(const Holdings& own, const ShardChoice& choice, comm::Communicator& comm) {
  torch::NoGradGuard no_grad;
  const int source = *std::ranges::min_element(choice.giver);
  const bool gives = comm.rank() == source;
  StepFacts facts;
  nlohmann::json told = nullptr;
  if (gives) {
    facts = *given_by(source, own, choice).front()->facts;
    told = {{"rest", facts.rest}, {"buffers", outline(facts.buffers)}};
  }
  told = parallel::gather_json(told, &comm)[static_cast<size_t>(source)];
  facts.step = choice.step;
  facts.rest = told.at("rest");
  if (!gives) facts.buffers = laid_out(told.at("buffers"));
  if (comm.size() > 1)
    for (auto& [name, tensor] : facts.buffers) comm::broadcast(comm, tensor, source, name.substr(0, 40));
  return facts;
}

}  // namespace yoke::engine
