// Maps a collective's working buffer to memory: the caller's input and output where the algorithm allows it,
// otherwise a buffer of our own.
#pragma once

#include <cstddef>
#include <vector>

#include "yoke/comm/operation.h"
#include "yoke/comm/tcp/program.h"

namespace yoke::comm::tcp {

// Request for `operation` (element counts, parts, root), without the algorithm.
plan::CollectiveRequest request_of(const Operation& operation, int rank, int size);

class Places {
 public:
  // Copies what must be in place before the first step. `spare` grows as needed and may be reused once this
  // object is gone.
  Places(const Operation& operation, const plan::CollectiveRequest& request, const Program& program,
         std::vector<std::byte>& spare);

  // Memory of `range`. Requires: `range` lies within one unit of the program.
  std::byte* at(const plan::Range& range) const;
  // Range of this rank's result after all steps.
  plan::Range result() const;
  // Copies results from `spare` to the output.
  void finish() const;

 private:
  struct Piece {
    plan::Range range;
    std::byte* data;
  };
  void map_pieces(const Program& program, std::vector<std::byte>& spare);
  void for_all_gather();
  void for_reduce_scatter(const Program& program, std::vector<std::byte>& spare);
  void for_gather(const Program& program, std::vector<std::byte>& spare);
  void for_scatter(const Program& program, std::vector<std::byte>& spare);
  void for_all_to_all(const Program& program, std::vector<std::byte>& spare);
  plan::Range all() const { return {0, request_.count}; }
  bool at_root() const { return request_.rank == request_.root; }
  const std::byte* input_at(int64_t element) const;
  void map(plan::Range range, const void* data);
  void use_spare(std::vector<std::byte>& spare);
  void copy(void* to, const void* from, int64_t elements) const;

  const Operation& operation_;
  const plan::CollectiveRequest& request_;
  size_t element_;
  plan::Range own_;
  std::vector<Piece> pieces_;
  std::byte* spare_ = nullptr;  // the whole working buffer, when used
};

}  // namespace yoke::comm::tcp
