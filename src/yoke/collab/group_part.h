// The part of the vector that this peer sums: what has arrived from whom, and which elements are averaged.
// No I/O.
#pragma once

#include <span>
#include <vector>

#include "yoke/collab/group.h"
#include "yoke/collab/group_memory.h"

namespace yoke::collab {

class GroupPart {
 public:
  // `own`: this peer's values of the part. `chunk`: elements per frame. `memory` must outlive it.
  GroupPart(const GroupPlan& plan, std::span<const float> own, size_t chunk, GroupMemory& memory);

  size_t chunks() const { return chunks_; }
  std::span<float> inbox(size_t member, size_t chunk);  // where a chunk of a sender goes
  // Chunk `chunk` of this member is in its inbox; chunks arrive in order.
  void arrived(size_t member) { ++arrived_[member]; }
  size_t arrived_of(size_t member) const { return arrived_[member]; }
  bool expects(size_t member) const { return arrived_[member] < expected_[member]; }
  // Nothing more comes from it.
  void give_up(size_t member) { expected_[member] = arrived_[member]; }

  // Averages chunks that are complete. Returns members whose values are not finite: they are left out.
  std::vector<size_t> combine_ready();
  size_t combined() const { return combined_; }
  std::span<const float> result(size_t chunk) const;
  std::span<const float> whole_result() const { return result_; }
  // Into outliers and usual_size.
  void judge(GroupResult& into) const;

 private:
  bool is_complete(size_t chunk) const;
  std::vector<size_t> combine_chunks(size_t first, size_t last);
  std::vector<Contribution> contributions(size_t first, size_t last) const;

  const GroupPlan& plan_;
  std::span<const float> own_;
  size_t chunk_, chunks_;
  std::vector<std::span<float>> inbox_;  // by member; empty: nothing comes from it
  std::vector<size_t> arrived_, expected_;
  std::vector<bool> banned_;
  std::span<float> result_;
  size_t combined_ = 0;
};

}  // namespace yoke::collab
