// Collectives without a network: step lists replayed on vectors, and priced on a virtual clock.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "yoke/plan/collectives/steps.h"

namespace yoke::sim {

using StepLists = std::vector<std::vector<plan::Step>>;  // [rank]

// The lists of all ranks; `request.rank` is ignored.
StepLists steps_of_all(plan::CollectiveRequest request);

// Traffic of one rank.
struct Moved {
  int64_t elements_sent = 0;
  int64_t messages_sent = 0;
  int64_t elements_received = 0;
  int64_t elements_combined = 0;
};

using Combine = std::function<int64_t(int64_t mine, int64_t theirs)>;

// Runs the lists on buffers[rank], each rank at its own pace, with ordered messages between two ranks. Throws
// ConfigError for a deadlock, a range outside its buffer, different sizes, or a message that is never
// received.
std::vector<Moved> replay(const StepLists& lists, std::vector<std::vector<int64_t>>& buffers,
                          const Combine& combine);

// Seconds if every rank sends one message and receives one message at a time, each taking alpha + bytes x
// beta, with a barrier after every round.
double price_rounds(const StepLists& lists, int64_t element_bytes, const plan::LinkCost& cost);

}  // namespace yoke::sim
