// [data]: which data set, and how it is cut into batches.
#pragma once

#include <cstdint>
#include <string>

#include "yoke/config/fields.h"

namespace yoke::data {

struct DataOptions {
  std::string name = "synthetic";
  std::string dir;          // where its files are; empty: the usual places
  int64_t batch_size = 64;  // per replica
  bool shuffle = true;
  int64_t limit = 0;       // use only the first N samples; 0: all
  int64_t seq_len = 0;     // tokens: length of a sample; 0: what the model takes
  int64_t samples = 1024;  // synthetic: size of the training set
  int64_t workers = 1;     // threads that prepare batches ahead; 0: none
  int64_t prefetch = 4;    // batches prepared ahead
  bool drop_last = true;   // leave out the last, smaller batch of an epoch
};

inline void describe(config::Fields& f, DataOptions& o) {
  f.choice("name", o.name, {"fashion_mnist", "mnist", "cifar10", "tokens", "libsvm", "synthetic"},
           "which data set");
  f.text("dir", o.dir, "folder or file of the data set; empty looks in the usual places");
  f.integer("batch_size", o.batch_size, "samples of one batch of one replica", 1);
  f.boolean("shuffle", o.shuffle, "draw a new order every epoch from train.seed");
  f.integer("limit", o.limit, "use only the first N samples; 0 uses all");
  f.integer("seq_len", o.seq_len, "tokens: length of one sample; 0 is the model's longest");
  f.integer("samples", o.samples, "synthetic: number of training samples", 1);
  f.integer("workers", o.workers,
            "threads that prepare batches ahead; 0 prepares them in the training thread", 0, 64);
  f.integer("prefetch", o.prefetch, "batches prepared ahead", 1, 1024);
  f.boolean("drop_last", o.drop_last,
            "leave out the last batch of an epoch when it is smaller than the others");
}

}  // namespace yoke::data
