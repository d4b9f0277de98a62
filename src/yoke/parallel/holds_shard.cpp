#include "yoke/parallel/holds_shard.h"

#include "yoke/parallel/common/forwarding.h"

namespace yoke::parallel {
namespace {

Strategy* innermost(Strategy& strategy) {
  Strategy* inner = &strategy;
  while (auto* forwarding = dynamic_cast<Forwarding*>(inner)) inner = forwarding->inner.get();
  return inner;
}

}  // namespace

std::vector<StatePiece> shard_of(Strategy& strategy) {
  Strategy* inner = innermost(strategy);
  if (auto* holder = dynamic_cast<HoldsShard*>(inner)) return holder->shard();
  std::vector<StatePiece> whole = inner->state();
  std::erase_if(whole, [](const StatePiece& one) { return one.kind == StatePiece::Kind::kBuffer; });
  return whole;
}

ShardPlace place_of_shard(Strategy& strategy) {
  auto* holder = dynamic_cast<HoldsShard*>(innermost(strategy));
  return holder != nullptr ? holder->place_of_shard() : ShardPlace();
}

}  // namespace yoke::parallel
