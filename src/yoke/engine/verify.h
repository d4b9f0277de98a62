// Proves a parallel layout right: the same steps on one device, side by side, compared after each.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "yoke/data/options.h"
#include "yoke/engine/worker.h"
#include "yoke/ps/server.h"

namespace yoke::engine {

// Of what is not finite, on one side only, of another shape, or not there at all.
constexpr double kInfinitelyApart = std::numeric_limits<double>::infinity();

// Largest differences over all steps and ranks, each relative to the largest number of the one device.
struct Differences {
  double loss = 0;
  double gradient = 0;
  double parameter = 0;
  double largest() const;
};

struct Verification {
  std::vector<double> reference_loss;  // of one device, by step
  std::vector<double> loss;            // of the layout
  Differences worst;
};

// Parameter servers, as the layout's workers see them and as they are made.
struct ServedLayout {
  ps::ServerOptions server;
  parallel::PsSetup setup;  // without a messenger
};

struct VerifyOptions {
  std::string layout;           // for messages
  WorkerOptions alone;          // one device; its batch_size is the global batch, which every layout cuts
  WorkerOptions parallel;       // a rank of the layout, before it meets the others
  int ranks = 1;                // threads of this process
  std::string split = "equal";  // parallel.split: shares of the replicas
  std::optional<ServedLayout> served;
  data::DataOptions data;
  int64_t steps = 10;
  torch::ScalarType type = torch::kFloat64;
  // Called with every worker of the layout once it is made. Tests break layouts here.
  std::function<void(int rank, Worker& worker)> tamper;

  // Of the model, each on its part of the batch.
  int64_t copies() const { return ranks * parallel.threads / parallel.pipeline.stages; }
};

// Trains the layout on ranks of this process (threads) and one device beside it. Schedules that do not flush
// run beside a replay of their staleness (verify_pipeline.h); with servers, `gradient` is that of the mean
// over workers. Throws ConfigError where the batch cannot be cut that way.
Verification verify(const VerifyOptions& options);

}  // namespace yoke::engine
