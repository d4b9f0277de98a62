// Proves a parallel layout right: the same steps on one device, side by side, compared after each.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "yoke/data/options.h"
#include "yoke/engine/worker.h"

namespace yoke::engine {

struct Layout {
  std::string text;
  int64_t data = 1;             // replicas
  int64_t accumulate = 1;       // micro-batches of a step
  int64_t zero = 0;             // parallel.zero
  bool threads = false;         // parallel.sync = threads: all replicas in one process
  std::string split = "equal";  // parallel.split: shares of the replicas
  bool served = false;          // parallel.sync = ps: parameter servers, with
  int64_t servers = 1;
  std::string policy = "sync";
  int64_t k = 0;
  int64_t pipeline = 1;  // stages
  parallel::PipelineOptions schedule{};
  int64_t ranks() const { return data * pipeline; }
};

// "data=2; data=4,accumulate=2; pipeline=2,schedule=gpipe,microbatches=4". Throws ConfigError that lists the
// words it knows.
std::vector<Layout> parse_layouts(const std::string& text);

// Differences are relative to the largest number of the one device where that is above 1.
struct Differences {
  double loss = 0;
  double gradient = 0;
  double parameter = 0;
  double largest() const;
};

struct Verification {
  std::vector<double> reference_loss;  // of one device, by step
  std::vector<double> loss;            // of the layout
  Differences worst;                   // over all steps
};

struct VerifyOptions {
  WorkerOptions worker;  // batch_size is the global batch: every layout cuts the same one
  data::DataOptions data;
  int64_t steps = 10;
  torch::ScalarType type = torch::kFloat64;
};

// Trains `layout` on ranks of this process (threads) and one device beside it, with the micro-batches of a
// pipeline accumulated; `pipedream` and `2bw` beside a replay of their staleness (verify_stale.h). Throws
// ConfigError where the batch cannot be cut that way.
Verification verify(const VerifyOptions& options, const Layout& layout);

// The same with parameter servers (layout.served). Gradients are not compared: nobody has their mean.
Verification verify_with_servers(const VerifyOptions& options, const Layout& layout);

}  // namespace yoke::engine
