// [data]: which data set, and how it is divided into batches.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "yoke/config/fields.h"

namespace yoke::data {

struct DataOptions {
  std::string name = "synthetic";
  std::string dir;          // folder or file; empty: the default locations
  int64_t batch_size = 64;  // per replica
  bool shuffle = true;
  int64_t limit = 0;       // use only the first N samples; 0: all
  int64_t seq_len = 0;     // tokens: length of a sample; 0: the model's maximum
  int64_t samples = 1024;  // synthetic: size of the training set
  double noise = 0;        // synthetic: share of training labels drawn at random
  int64_t workers = 1;     // loader threads; 0: load in the training thread
  int64_t prefetch = 4;    // prefetched batches
  bool drop_last = true;   // omit the last, incomplete batch of an epoch
  // images:
  std::string augment = "none";
  double jitter = 0;  // of brightness, contrast and saturation
  double mixup = 0;   // alpha; 0: off
  std::string on_bad_file = "stop";
};

// The names that data.name accepts: built-in data sets, then registered ones.
std::vector<std::string> data_names();

inline void describe(config::Fields& f, DataOptions& o) {
  f.choice("name", o.name, data_names(), "name of the data set");
  f.text("dir", o.dir, "folder or file of the data set; empty searches the default locations");
  f.integer("batch_size", o.batch_size, "batch size per replica", 1);
  f.boolean("shuffle", o.shuffle, "shuffle every epoch, seeded by train.seed");
  f.integer("limit", o.limit, "use only the first N samples; 0: all");
  f.integer("seq_len", o.seq_len, "tokens: sequence length; 0: the model's maximum");
  f.integer("samples", o.samples, "synthetic: number of training samples", 1);
  f.number("noise", o.noise, "synthetic: share of training labels drawn at random, seeded by sample", 0, 1);
  f.integer("workers", o.workers, "loader threads; 0 loads in the training thread", 0, 64);
  f.integer("prefetch", o.prefetch, "number of prefetched batches; at least one for each worker", 1, 1024);
  f.boolean("drop_last", o.drop_last, "drop the last batch of an epoch if it is incomplete");
  f.choice("augment", o.augment, {"none", "imagenet", "cifar"},
           "images: random crops and flips of training samples");
  f.number("jitter", o.jitter, "images: largest change of brightness, contrast and saturation; 0: none", 0,
           1);
  f.number("mixup", o.mixup, "images: mix pairs of samples by a share drawn from Beta(mixup, mixup); 0: off",
           0, 100);
  f.choice("on_bad_file", o.on_bad_file, {"stop", "skip"},
           "images: stop at a broken file, or name it and skip it");
}

}  // namespace yoke::data
