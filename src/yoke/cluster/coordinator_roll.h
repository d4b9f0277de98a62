// The ranks that have joined; a job forms once all have. Pure data, no I/O.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "yoke/cluster/session.h"

namespace yoke::cluster {

class Roll {
 public:
  explicit Roll(int world_size);

  // Empty on success, otherwise the reason, which names both processes.
  std::string enter(const Member& member, int world_size);
  // Replaces a rank that has ended, in its next life.
  void enter_again(Member member);
  // One more rank than there were, in life 1.
  void add(Member member);
  int late() const { return late_; }  // ranks that were added
  void set_role(int rank, const std::string& role) { members_.at(static_cast<size_t>(rank))->role = role; }
  void remove(int rank);
  bool complete() const { return present_ == members_.size(); }
  std::vector<int> missing() const;
  const Member* find(int rank) const;  // nullptr: not joined
  std::vector<Member> members() const;
  int world_size() const { return static_cast<int>(members_.size()); }

 private:
  std::string size_difference(const Member& member, int world_size) const;
  std::vector<std::optional<Member>> members_;
  size_t present_ = 0;
  int late_ = 0;
};

}  // namespace yoke::cluster
