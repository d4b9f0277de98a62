// Collectives in place, on buffers that every rank can access.
//
// Ranks claim pieces dynamically. Each piece is combined in rank order by one rank, so the result does not
// depend on who claimed it.
#include <algorithm>

#include "yoke/base/error.h"
#include "yoke/comm/shared/collectives.h"
#include "yoke/comm/shared/combine.h"

namespace yoke::comm::shared {
namespace {

constexpr size_t kSmallestPiece = 32 << 10;
constexpr size_t kLargestPiece = 512 << 10;  // a piece is read again from the L2 cache
constexpr size_t kPiecesEach = 8;  // per rank, so that a rank that is late or shares its core takes fewer

int64_t piece_elements(size_t bytes, int ranks, size_t element) {
  size_t fair = bytes / (kPiecesEach * static_cast<size_t>(ranks)) / 4096 * 4096;
  return static_cast<int64_t>(std::clamp(fair, kSmallestPiece, kLargestPiece) / element);
}

// How far into each rank's buffers the works reach, in elements.
struct Reach {
  std::array<int64_t, kMaxRanks> input{}, output{};

  Reach(const std::vector<Work>& works, int ranks) {
    for (const Work& work : works) {
      extend(input, work.source, work.source_offset + work.count, ranks);
      extend(output, work.out, work.out_offset + work.count, ranks);
    }
  }
  static void extend(std::array<int64_t, kMaxRanks>& ends, int who, int64_t end, int ranks) {
    for (int r = 0; r < ranks; ++r) {
      auto at = static_cast<size_t>(r);
      if (who == kEverybody || who == r) ends[at] = std::max(ends[at], end);
    }
  }
};

}  // namespace

void Collectives::in_place(const Task& task) {
  struct Active {
    Word& word;
    explicit Active(Word& flag) : word(flag) { word.store(1, std::memory_order_seq_cst); }
    ~Active() { word.store(0, std::memory_order_seq_cst); }
  };
  {
    Active active(control_.rank(rank_).active);
    phases_.check();  // from here on a rank that aborts waits until this rank is not active (abandon())
    const Operation& operation = task.operation;
    Bases inputs{}, outputs{};
    const Reach reach(list_.works, size_);
    auto bytes_of = [&](int64_t elements) { return static_cast<size_t>(elements) * task.element; };
    for (int r = 0; r < size_; ++r) {
      const Post& post = phases_.post(r);
      auto at = static_cast<size_t>(r);
      if (uses_input(operation, r)) inputs[at] = space_->resolve(post.input, bytes_of(reach.input[at]));
      if (uses_output(operation, r)) outputs[at] = space_->resolve(post.output, bytes_of(reach.output[at]));
    }
    size_t bytes = 0;
    for (const Work& work : list_.works) bytes += static_cast<size_t>(work.count) * task.element;
    const int64_t piece = piece_elements(bytes, size_, task.element);
    int64_t mine = claim(), first = 0;
    for (const Work& work : list_.works) {
      int64_t pieces = (work.count + piece - 1) / piece;
      for (; mine < first + pieces; mine = claim()) {
        if (mine < first) throw CommError("a rank withdrew its part of this group's operation");
        int64_t begin = (mine - first) * piece;
        do_piece(task, work, begin, std::min(piece, work.count - begin), inputs, outputs);
      }
      first += pieces;
    }
  }
  meet(task.deadline);
}

int64_t Collectives::claim() {
  std::atomic<uint64_t>& claims = control_.head().claims;
  uint64_t phase = static_cast<uint64_t>(phases_.current()) << 32;
  uint64_t now = claims.load(std::memory_order_relaxed);
  for (;;) {
    // A value left by an earlier operation counts as zero.
    uint64_t next = (now >> 32 << 32) == phase ? now : phase;
    if (claims.compare_exchange_weak(now, next + 1, std::memory_order_relaxed))
      return static_cast<int64_t>(next & 0xffffffffu);
  }
}

void Collectives::do_piece(const Task& task, const Work& work, int64_t begin, int64_t count,
                           const Bases& inputs, const Bases& outputs) const {
  std::array<const void*, kMaxRanks> sources;
  std::array<void*, kMaxRanks> outs;
  size_t source_count = 0, out_count = 0;
  size_t source_at = static_cast<size_t>(work.source_offset + begin) * task.element;
  size_t out_at = static_cast<size_t>(work.out_offset + begin) * task.element;
  for (size_t r = 0; r < static_cast<size_t>(size_); ++r) {
    if (work.source == kEverybody || work.source == static_cast<int>(r))
      sources[source_count++] = inputs[r] + source_at;
    if (work.out == kEverybody || work.out == static_cast<int>(r)) outs[out_count++] = outputs[r] + out_at;
  }
  combine({outs.data(), out_count}, {sources.data(), source_count}, static_cast<size_t>(count), task.type,
          task.operation.reduce);
}

}  // namespace yoke::comm::shared
