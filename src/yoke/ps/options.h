// [ps]: training with parameter servers. [slowdown]: workers that are made slower on purpose, with and
// without them.
#pragma once

#include <cstdint>
#include <string>

#include "yoke/config/fields.h"

namespace yoke::ps {

struct PsOptions {
  int64_t servers = 1;
  std::string place = "dedicated";
  std::string policy = "sync";
  int64_t k = 0;                 // of the k_ rules
  std::string max_delay = "0";   // of bounded_delay and ssp; or inf, or a schedule
  int64_t range_bytes = 262144;  // parameters travel in ranges of at most this size
  std::string stale_step = "full";
  double stale_c = 1;
  double stale_max = 1;
  bool adasync = false;
  double adasync_interval = 1;
  int64_t n_push = 1;  // Downpour
  int64_t n_fetch = 1;
  int64_t warm_start = 0;
  std::string on_worker_loss = "continue";
  int64_t restarts = 3;
  double timeout = 300;
  bool log_updates = false;
};

inline void describe(config::Fields& f, PsOptions& o) {
  f.integer("servers", o.servers, "that share the parameters", 1, 1024);
  f.choice("place", o.place, {"dedicated", "colocated"},
           "where the servers are: processes besides the workers, or inside the first of them, one in each");
  f.choice("policy", o.policy,
           {"sync", "k_sync", "k_batch_sync", "async", "k_async", "k_batch_async", "bounded_delay", "ssp"},
           "when the servers update (docs/design/policies.md)");
  f.integer("k", o.k, "gradients of an update, for the k_ rules");
  f.text(
      "max_delay", o.max_delay,
      "rounds that a worker may be ahead of the slowest, or inf: bounded_delay, ssp; \"0, 500:4, 2000:inf\" "
      "changes it at those updates");
  f.bytes("range_bytes", o.range_bytes, "parameters are cut into ranges of at most this size");
  f.choice(
      "stale_step", o.stale_step, {"full", "inverse", "distance"},
      "what a stale gradient counts: all, 1/staleness, or min(stale_c/|w_now - w_then|^2, stale_max)/lr");
  f.number("stale_c", o.stale_c, "C of stale_step = distance");
  f.number("stale_max", o.stale_max, "largest learning rate of stale_step = distance");
  f.boolean("adasync", o.adasync, "K grows from ps.k on as the loss falls");
  f.duration("adasync_interval", o.adasync_interval, "time between two looks at the loss");
  f.integer("n_push", o.n_push, "Downpour: minibatches between two pushes, with local steps between", 1);
  f.integer("n_fetch", o.n_fetch, "Downpour: minibatches between two pulls", 1);
  f.integer("warm_start", o.warm_start, "updates that the first worker makes alone");
  f.choice(
      "on_worker_loss", o.on_worker_loss, {"continue", "restart", "stop"},
      "what happens when a worker other than the first is killed: the others go on, it is started again, "
      "the job ends");
  f.integer("restarts", o.restarts, "on_worker_loss = restart: how often one worker is started again", 1,
            1000);
  f.duration(
      "timeout", o.timeout,
      "how long a server may take to answer, and a worker that others wait for to give a sign: then the "
      "job ends and names it");
  f.boolean("log_updates", o.log_updates, "a JSON line for each update in OUT/updates.jsonl");
}

struct SlowdownOptions {
  std::string law = "none";
  std::string workers;  // empty: all
  int64_t seed = 1;
};

inline void describe(config::Fields& f, SlowdownOptions& o) {
  f.text("law", o.law,
         "delay added to each minibatch: none const:2x exp:5ms shifted_exp:5ms,5ms pareto:1ms,3 trace:FILE");
  f.text("workers", o.workers, "which workers have it: 3,5; empty is all");
  f.integer("seed", o.seed, "of the delays");
}

}  // namespace yoke::ps
