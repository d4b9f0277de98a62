// [average]: how often and with whom replicas average their parameters (parallel.sync = "average").
#pragma once

#include <cstdint>
#include <string>

#include "yoke/config/fields.h"

namespace yoke::parallel {

struct AverageOptions {
  std::string method = "local";
  int64_t every = 1;      // H: local steps from one round to the next
  int64_t start = 1000;   // post_local: gradients are averaged up to this step
  int64_t fragments = 1;  // parts of the model that take turns
  int64_t overlap = 0;    // steps during which a round is in flight
  double outer_lr = 0.7;  // diloco: those of the paper
  double outer_momentum = 0.9;
  std::string graph = "ring";  // gossip
};

inline void describe(config::Fields& f, AverageOptions& o) {
  f.choice("method", o.method, {"local", "end", "post_local", "diloco", "gossip", "async_gossip"},
           "local SGD; one average at the end; gradients first, then local; outer Nesterov; neighbours only; "
           "pairs that do not wait");
  f.integer("every", o.every, "local steps between two averaging rounds", 1, 1'000'000'000);
  f.integer("start", o.start, "post_local: gradients are averaged in every step up to this one", 0,
            1'000'000'000'000);
  f.integer("fragments", o.fragments, "parts of the model that are averaged in turn, one at a time", 1,
            65536);
  f.integer("overlap", o.overlap, "steps that a round may take while training continues; 0: wait for it", 0,
            1'000'000);
  f.number("outer_lr", o.outer_lr, "diloco: learning rate of the outer step", 0.0, 100.0);
  f.number("outer_momentum", o.outer_momentum, "diloco: Nesterov momentum of the outer step", 0.0, 1.0);
  f.choice("graph", o.graph, {"ring", "torus", "hypercube", "exponential", "full"},
           "gossip, async_gossip: the graph of ranks that average with each other");
}

}  // namespace yoke::parallel
