// The part of [train] that controls the training loop.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "yoke/config/fields.h"

namespace yoke::engine {

// The names that train.preset accepts; empty: none.
inline std::vector<std::string> preset_names() {
  return {"", "imagenet", "imagenet_linear", "imagenet_tricks"};
}

struct LoopOptions {
  double epochs = 1;
  int64_t steps = 0;       // 0: as many as `epochs` needs
  int64_t accumulate = 1;  // batches per step
  int64_t accumulate_tokens = 0;
  double label_smoothing = 0;
  std::string preset;
  int64_t seed = 1;
  bool evaluate = true;
  bool sync_batchnorm = false;
  std::string non_finite = "stop";
};

inline void describe(config::Fields& f, LoopOptions& o) {
  f.number("epochs", o.epochs, "passes over the training set; may be fractional");
  f.integer("steps", o.steps, "optimizer steps; 0: as many as train.epochs needs");
  f.integer("accumulate", o.accumulate, "gradient accumulation: batches per optimizer step", 1, 1'000'000);
  f.integer(
      "accumulate_tokens", o.accumulate_tokens,
      "gradient accumulation by size: as many batches per optimizer step as have this many tokens, over "
      "all replicas; 0: train.accumulate");
  f.number("label_smoothing", o.label_smoothing,
           "training targets: this share of the probability is spread over all classes", 0, 0.9999999);
  f.choice("preset", o.preset, preset_names(),
           "published recipe that sets keys of [train] and [data], listed below; keys you set yourself win");
  f.integer("seed", o.seed, "random seed for weights, sample order and dropout");
  f.boolean("evaluate", o.evaluate, "evaluate on the test set after each epoch and at the end");
  f.boolean("sync_batchnorm", o.sync_batchnorm, "synchronize BatchNorm statistics across replicas");
  f.choice(
      "non_finite", o.non_finite, {"stop", "skip"},
      "on NaN or inf in loss or gradients: stop with an error, or check every step and skip the bad ones");
}

}  // namespace yoke::engine
