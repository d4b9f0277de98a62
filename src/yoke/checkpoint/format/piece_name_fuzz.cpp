// Any bytes as the name of a tensor: no piece, or one that lies inside its tensor and survives being written
// and read.
#include <cstdlib>

#include "yoke/checkpoint/format/piece_name.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace yoke::checkpoint;
  std::optional<NamedPiece> piece = parse_piece_name({reinterpret_cast<const char*>(data), size});
  if (!piece) return 0;
  const PieceAt& at = piece->at;
  if (at.end < at.begin || at.begin < 0) std::abort();
  if (!at.shape.empty() && at.dim >= static_cast<int64_t>(at.shape.size())) std::abort();
  std::optional<NamedPiece> again = parse_piece_name(piece_name(piece->whole, at));
  // A whole name may itself end like a piece's: it is then read as part of it.
  if (!again || (again->whole == piece->whole && (again->at.ranges != at.ranges || again->at.end != at.end)))
    std::abort();
  return 0;
}
