// Collectives without a network: step lists replayed on vectors, and priced on a virtual clock.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "yoke/plan/collectives/steps.h"

namespace yoke::sim {

using StepLists = std::vector<std::vector<plan::Step>>;  // [rank]

// What all ranks of an operation do; `request.rank` is ignored.
StepLists steps_of_all(plan::CollectiveRequest request);

// How much one rank moved.
struct Moved {
  int64_t elements_sent = 0;
  int64_t messages_sent = 0;
  int64_t elements_received = 0;
  int64_t elements_combined = 0;
};

using Combine = std::function<int64_t(int64_t mine, int64_t theirs)>;

// Runs the lists on buffers[rank], each rank at its own pace, messages in order between two ranks.
// Throws ConfigError when ranks wait for each other for ever, a range lies outside of its buffer, sizes
// differ, or a message is never received.
std::vector<Moved> replay(const StepLists& lists, std::vector<std::vector<int64_t>>& buffers,
                          const Combine& combine);

// Seconds when every rank sends one message at a time and receives one at a time, each alpha + bytes x beta,
// and no rank is ahead of the slowest by a round.
double price_rounds(const StepLists& lists, int64_t element_bytes, const plan::LinkCost& cost);

}  // namespace yoke::sim
