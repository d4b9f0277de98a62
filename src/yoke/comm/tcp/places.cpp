#include "yoke/comm/tcp/places.h"

#include <cstring>

#include "yoke/base/error.h"

namespace yoke::comm::tcp {
namespace {

using plan::Collective;
using plan::Range;

int64_t working_count(const Operation& operation, int rank, int size) {
  switch (operation.op) {
    case Collective::kReduceScatter:
      return operation.input.count;
    case Collective::kAllToAll:
      return 2 * operation.input.count;
    case Collective::kGather:
      return rank == operation.root ? operation.output.count : operation.input.count * size;
    case Collective::kScatter:
      return rank == operation.root ? operation.input.count : operation.output.count * size;
    case Collective::kBarrier:
      return 0;
    default:
      return operation.output.count;
  }
}

}  // namespace

plan::CollectiveRequest request_of(const Operation& operation, int rank, int size) {
  plan::CollectiveRequest request;
  request.op = operation.op;
  request.rank = rank;
  request.size = size;
  request.root = operation.root;
  request.count = working_count(operation, rank, size);
  request.parts = operation.parts;
  // Trees of large messages pipeline about 64 pieces; more would only lengthen the step list.
  request.piece = std::max<int64_t>(request.piece, request.count / 64);
  return request;
}

Places::Places(const Operation& operation, const plan::CollectiveRequest& request, const Program& program,
               std::vector<std::byte>& spare)
    : operation_(operation),
      request_(request),
      element_(size_of(operation.descriptor.type)),
      own_(own_part(request)) {
  map_pieces(program, spare);
}

void Places::map_pieces(const Program& program, std::vector<std::byte>& spare) {
  switch (request_.op) {
    case Collective::kAllGather:
      return for_all_gather();
    case Collective::kReduceScatter:
      return for_reduce_scatter(program, spare);
    case Collective::kGather:
      return for_gather(program, spare);
    case Collective::kScatter:
      return for_scatter(program, spare);
    case Collective::kAllToAll:
      return for_all_to_all(program, spare);
    default:
      map(all(), operation_.output.data);
  }
}

void Places::for_all_gather() {
  map(all(), operation_.output.data);
  copy(at(own_), operation_.input.data, own_.count);
}

void Places::for_reduce_scatter(const Program& program, std::vector<std::byte>& spare) {
  if (program.writes_outside(own_)) {
    use_spare(spare);
    return copy(spare_, operation_.input.data, request_.count);
  }
  map(own_, operation_.output.data);
  map(all(), operation_.input.data);
  copy(operation_.output.data, input_at(own_.begin), own_.count);
}

void Places::for_gather(const Program& program, std::vector<std::byte>& spare) {
  if (at_root()) {
    map(all(), operation_.output.data);
  } else if (program.touches_outside(own_)) {
    use_spare(spare);
  } else {
    return map(own_, operation_.input.data);
  }
  copy(at(own_), operation_.input.data, own_.count);
}

void Places::for_scatter(const Program& program, std::vector<std::byte>& spare) {
  if (at_root()) {
    map(all(), operation_.input.data);
    return copy(operation_.output.data, at(own_), own_.count);
  }
  if (program.touches_outside(own_)) return use_spare(spare);
  map(own_, operation_.output.data);
}

void Places::for_all_to_all(const Program& program, std::vector<std::byte>& spare) {
  const int64_t half = request_.count / 2;
  const int64_t part = half / request_.size;
  if (program.writes_outside({half, half})) {
    use_spare(spare);
    copy(spare_, operation_.input.data, half);
  } else {
    map({0, half}, operation_.input.data);
    map({half, half}, operation_.output.data);
  }
  copy(at({half + part * request_.rank, part}), at({part * request_.rank, part}), part);
}

void Places::finish() const {
  if (!spare_) return;
  if (request_.op == Collective::kReduceScatter || request_.op == Collective::kScatter)
    copy(operation_.output.data, at(own_), own_.count);
  if (request_.op == Collective::kAllToAll)
    copy(operation_.output.data, at({request_.count / 2, request_.count / 2}), request_.count / 2);
}

Range Places::result() const {
  return request_.op == Collective::kReduceScatter ? own_ : all();
}

std::byte* Places::at(const Range& range) const {
  if (range.count == 0) return nullptr;
  for (const Piece& piece : pieces_) {
    if (range.begin < piece.range.begin || range.begin + range.count > piece.range.begin + piece.range.count)
      continue;
    return piece.data + static_cast<size_t>(range.begin - piece.range.begin) * element_;
  }
  YOKE_CHECK(false, "[{}, {}) of the working buffer is not mapped", range.begin, range.begin + range.count);
  return nullptr;
}

const std::byte* Places::input_at(int64_t element) const {
  return static_cast<const std::byte*>(operation_.input.data) + static_cast<size_t>(element) * element_;
}

void Places::map(Range range, const void* data) {
  // Only ranges that the program does not write are mapped to the input, hence the const_cast is safe.
  pieces_.push_back({range, const_cast<std::byte*>(static_cast<const std::byte*>(data))});
}

void Places::use_spare(std::vector<std::byte>& spare) {
  size_t bytes = static_cast<size_t>(request_.count) * element_;
  if (spare.size() < bytes) spare.resize(bytes);
  spare_ = spare.data();
  map(all(), spare_);
}

void Places::copy(void* to, const void* from, int64_t elements) const {
  if (elements > 0 && to != from) std::memmove(to, from, static_cast<size_t>(elements) * element_);
}

}  // namespace yoke::comm::tcp
