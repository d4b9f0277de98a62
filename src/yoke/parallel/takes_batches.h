// Of a strategy whose batches are handed out one by one, because ranks come and go.
#pragma once

#include <cstdint>
#include <optional>

#include "yoke/parallel/choices.h"

namespace yoke::parallel {

// Whether ranks take batches of data.batch_size samples one by one, instead of their part of global batches.
inline bool hands_out_batches(const Choices& choices) {
  return choices.parallel.sync == "ps" && choices.ps.max_workers > 0;
}

class TakesBatches {
 public:
  virtual ~TakesBatches() = default;
  // Call it once for each batch, after acquire(): the number of the next one that this rank computes, from
  // the start of the run. Empty: its own next one.
  virtual std::optional<int64_t> next_batch() = 0;
};

}  // namespace yoke::parallel
