// Options of [ps] (training with parameter servers) and [slowdown] (workers that are slowed down
// artificially, with or without servers).
#pragma once

#include <cstdint>
#include <string>

#include "yoke/config/fields.h"

namespace yoke::ps {

struct PsOptions {
  int64_t servers = 1;
  std::string place = "dedicated";
  std::string policy = "sync";
  int64_t k = 0;                 // k_ rules
  std::string max_delay = "0";   // bounded_delay, ssp: a number, inf, or a schedule
  int64_t range_bytes = 262144;  // maximum size of a range
  std::string stale_step = "full";
  double stale_c = 1;
  double stale_max = 1;
  bool adasync = false;
  double adasync_interval = 1;
  bool overlap = true;
  int64_t n_push = 1;  // Downpour
  int64_t n_fetch = 1;
  int64_t warm_start = 0;
  std::string on_worker_loss = "continue";
  std::string on_server_loss = "auto";
  int64_t restarts = 3;
  double timeout = 300;
  bool log_updates = false;
  int64_t replicas = 0;
  int64_t max_servers = 0;
  int64_t min_workers = 1;
  int64_t max_workers = 0;
  std::string sparse = "auto";
  bool key_cache = true;
  std::string fixed_point = "none";
  bool compress = false;
  double significant = 0;
  double random_skip = 0;
  bool kkt = false;
};

inline void describe(config::Fields& f, PsOptions& o) {
  f.integer("servers", o.servers, "number of parameter servers", 1, 1024);
  f.choice("place", o.place, {"dedicated", "colocated"},
           "server placement: dedicated processes, or colocated as threads in the first workers, one each");
  f.choice("policy", o.policy,
           {"sync", "k_sync", "k_batch_sync", "async", "k_async", "k_batch_async", "bounded_delay", "ssp"},
           "synchronization rule (docs/design/policies.md)");
  f.integer("k", o.k, "k_ rules: gradients per update");
  f.text("max_delay", o.max_delay,
         "bounded_delay, ssp: maximum rounds ahead of the slowest worker, or inf; \"0, 500:4, 2000:inf\" "
         "changes it at updates 500 and 2000");
  f.bytes("range_bytes", o.range_bytes, "maximum size of a parameter range, the unit of push and pull");
  f.choice("stale_step", o.stale_step, {"full", "inverse", "distance"},
           "weight of a stale gradient: 1, 1/staleness, or min(stale_c/|w_now - w_then|^2, stale_max)/lr");
  f.number("stale_c", o.stale_c, "stale_step = distance: the constant C");
  f.number("stale_max", o.stale_max, "stale_step = distance: maximum learning rate");
  f.boolean("adasync", o.adasync, "AdaSync: increase K from ps.k as the loss falls");
  f.duration("adasync_interval", o.adasync_interval, "AdaSync: time between adjustments of K");
  f.boolean(
      "overlap", o.overlap,
      "push gradients while backward runs and pull parameters while the next forward runs, where the rule "
      "allows it");
  f.integer("n_push", o.n_push, "Downpour: minibatches between two pushes, with local steps in between", 1,
            1'000'000);
  f.integer("n_fetch", o.n_fetch, "Downpour: minibatches between two pulls", 1, 1'000'000);
  f.integer("warm_start", o.warm_start, "Downpour: initial updates by the first worker alone");
  f.choice("on_worker_loss", o.on_worker_loss, {"continue", "restart", "stop"},
           "when a worker other than the first is killed: continue without it, restart it, or stop the job");
  f.choice(
      "on_server_loss", o.on_server_loss, {"auto", "restart", "stop"},
      "replicas = 0, when a server is killed: restart all ranks from the last checkpoint, or stop the job; "
      "auto: restart where there is a checkpoint from which --resume auto resumes");
  f.integer("restarts", o.restarts,
            "maximum restarts per worker (on_worker_loss = restart), and of the job (on_server_loss)", 1,
            1000);
  f.duration(
      "timeout", o.timeout,
      "maximum silence of a server, or of a worker that others wait for, before the job ends with an error");
  f.integer("replicas", o.replicas,
            "copies of each parameter range on other servers: training continues if servers are killed, as "
            "long as a copy is left",
            0, 1023);
  f.integer(
      "max_servers", o.max_servers,
      "servers may join and leave while training continues; at most this many in total, including those "
      "that have left; 0: the set is fixed",
      0, 1024);
  f.integer("min_workers", o.min_workers,
            "fewest workers: the job ends when fewer are left after a loss, and no worker may leave below it",
            1, 1024);
  f.integer(
      "max_workers", o.max_workers,
      "workers may join and leave while training continues, and get batches one by one; at most this many "
      "in total, including those that have left; 0: only those of the start",
      0, 1024);
  f.boolean("log_updates", o.log_updates, "log every update as a JSON line to OUT/updates.jsonl");
  f.choice("sparse", o.sparse, {"auto", "on", "off"},
           "models with sparse samples: workers push and pull only the rows of a minibatch; auto: where the "
           "optimizer leaves other rows unchanged, or takes only a penalty off them");
  f.boolean("key_cache", o.key_cache, "ps.sparse: send a hash instead of a list of keys that the server has");
  f.choice("fixed_point", o.fixed_point, {"none", "int8", "int16"},
           "ps.sparse: round pushed gradients to this type, at random so that the mean is kept");
  f.boolean("compress", o.compress, "ps.sparse: compress values with zstd, both ways, where that is shorter");
  f.number("significant", o.significant,
           "ps.sparse: hold the gradient of a row back until its sum exceeds this; 0: push all");
  f.number(
      "random_skip", o.random_skip,
      "ps.sparse: leave rows of a gradient out with this probability; others are scaled to keep the mean", 0,
      0.999);
  f.boolean(
      "kkt", o.kkt,
      "ps.sparse, proximal: leave rows of zeros out whose gradient is too small for train.l1 to let them "
      "move");
}

struct SlowdownOptions {
  std::string law = "none";
  std::string link = "none";
  std::string workers;  // empty: all
  int64_t seed = 1;
};

inline void describe(config::Fields& f, SlowdownOptions& o) {
  f.text("law", o.law,
         "delay added to each minibatch: none const:2x exp:5ms shifted_exp:5ms,5ms pareto:1ms,3 trace:FILE");
  f.text("link", o.link,
         "parallel.sync = ps: delay of each gradient on its way to the servers: none exp:5ms "
         "shifted_exp:5ms,5ms pareto:1ms,3 trace:FILE");
  f.text("workers", o.workers, "workers that are slowed down, e.g. 3,5; empty: all");
  f.integer("seed", o.seed, "random seed of the delays");
}

}  // namespace yoke::ps
