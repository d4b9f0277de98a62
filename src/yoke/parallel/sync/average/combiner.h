// What a round makes of the values of a fragment: one file for each way.
#pragma once

#include <memory>

#include "yoke/parallel/sync/average/fragments.h"
#include "yoke/parallel/sync/average/options.h"

namespace yoke::parallel {

class Combiner {
 public:
  virtual ~Combiner() = default;
  // Allocates what a fragment keeps from round to round.
  virtual void prepare(Fragment& fragment) = 0;
  // Sends `fragment.sent`, this rank's values. Returns at once.
  virtual void begin(Fragment& fragment) = 0;
  // Waits; fragment.bucket.flat then holds the values to continue with. Throws CommError.
  virtual void finish(Fragment& fragment) = 0;
  // Whether what begin() started has ended, well or not, without waiting.
  virtual bool done(const Fragment& fragment) = 0;
  // Whether all replicas come to the same values.
  virtual bool agrees() const = 0;
};

// The mean of all replicas; with a compression hook the mean of what they moved since the last round, and for
// diloco an outer Nesterov step along it.
std::unique_ptr<Combiner> make_mean_combiner(const AverageOptions& options, const std::string& hook);
// The mean with the neighbours in a graph. Throws ConfigError where the graph has no such size.
std::unique_ptr<Combiner> make_gossip_combiner(const AverageOptions& options, comm::Communicator& comm);

}  // namespace yoke::parallel
