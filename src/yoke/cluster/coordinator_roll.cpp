#include "yoke/cluster/coordinator_roll.h"

#include <fmt/core.h>

namespace yoke::cluster {
namespace {

std::string who(const Member& member) {
  return fmt::format("{} (pid {}{}{})", member.host, member.pid, member.origin.empty() ? "" : ", ",
                     member.origin);
}

}  // namespace

Roll::Roll(int world_size) : members_(static_cast<size_t>(world_size)) {}

std::string Roll::size_difference(const Member& member, int size) const {
  std::string other = "the coordinator";
  for (const auto& one : members_)
    if (one) {
      other = who(*one);
      break;
    }
  return fmt::format(
      "ranks disagree about the size of the world: {} says {}, {} says {}. Next: start all of them with the "
      "same number",
      who(member), size, other, world_size());
}

std::string Roll::enter(const Member& member, int size) {
  if (size != world_size()) return size_difference(member, size);
  if (member.rank < 0 || member.rank >= world_size())
    return fmt::format(
        "rank {} of {} is out of range: the ranks of this job are 0 to {}. Next: correct the rank or the "
        "size of the world",
        member.rank, who(member), world_size() - 1);
  auto& place = members_[static_cast<size_t>(member.rank)];
  if (place)
    return fmt::format(
        "rank {} joined twice: {} and {}. Next: give every process its own rank, and every job its own id",
        member.rank, who(*place), who(member));
  place = member;
  ++present_;
  return "";
}

void Roll::enter_again(Member member) {
  auto& place = members_.at(static_cast<size_t>(member.rank));
  member.life = place->life + 1;
  place = std::move(member);
}

void Roll::add(Member member) {
  member.life = 1;
  members_.emplace_back(std::move(member));
  ++present_;
  ++late_;
}

void Roll::remove(int rank) {
  auto& place = members_.at(static_cast<size_t>(rank));
  if (place) --present_;
  place.reset();
}

std::vector<int> Roll::missing() const {
  std::vector<int> ranks;
  for (size_t i = 0; i < members_.size(); ++i)
    if (!members_[i]) ranks.push_back(static_cast<int>(i));
  return ranks;
}

const Member* Roll::find(int rank) const {
  if (rank < 0 || rank >= world_size()) return nullptr;
  const auto& place = members_[static_cast<size_t>(rank)];
  return place ? &*place : nullptr;
}

std::vector<Member> Roll::members() const {
  std::vector<Member> all;
  for (const auto& one : members_)
    if (one) all.push_back(*one);
  return all;
}

}  // namespace yoke::cluster
