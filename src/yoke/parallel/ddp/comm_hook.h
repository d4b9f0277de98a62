// How a bucket of gradients is combined over ranks: plainly, or compressed.
//
// A hook is written in phases, so that buckets overlap: phase 0 of a bucket is called as soon as its last
// gradient exists, while backward runs on; the later phases after backward, phase 1 of every bucket in order,
// then phase 2 of those that want one, and so on. A phase begins by waiting for what the one before issued.
// All ranks make the same calls in the same order.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "yoke/comm/communicator.h"

namespace yoke {

struct GradientBucket {
  int index = 0;                     // in order of readiness; the same on every rank
  torch::Tensor flat;                // all gradients one behind the other, in memory of the communicator
  std::vector<torch::Tensor> parts;  // the same, each in its parameter's shape
  std::vector<int64_t> offsets;      // where each part begins in `flat`, in elements
  int64_t elements = 0;              // of `flat`, padding included
  torch::TensorOptions options;      // of `flat`
  int64_t bytes() const { return elements * static_cast<int64_t>(options.dtype().itemsize()); }
  comm::Communicator* comm = nullptr;  // of the replicas
  double divisor = 1;                  // the sum of all ranks is divided by it
  comm::Pending pending;               // for hooks: what the next phase waits for
  double seconds = 0;                  // for hooks: operations that have ended took, besides `pending`
};

class CommHook {
 public:
  virtual ~CommHook() = default;

  // Works on phase `phase` of the bucket. Returns true to be called again with the next one, false when
  // `flat` holds the combined gradients. Throws CommError as the communicator does.
  virtual bool advance(GradientBucket& bucket, int phase) = 0;

  // Buckets were cut anew: state kept for them (errors fed back) has lost its place.
  virtual void forget_buckets() {}

  // Payload of this rank so far: as it was handed to the communicator, and as it would be uncompressed.
  int64_t bytes_compressed() const { return compressed_; }
  int64_t bytes_uncompressed() const { return uncompressed_; }
  int64_t bytes_saved() const { return uncompressed_ - compressed_; }

 protected:
  void count(const GradientBucket& bucket, int64_t compressed) {
    uncompressed_ += bucket.bytes();
    compressed_ += compressed;
  }

 private:
  int64_t compressed_ = 0;
  int64_t uncompressed_ = 0;
};

// From a text as in `ddp.hook`: none fp16 bf16 powersgd:R topk:F sign int8. Null for none. Throws ConfigError
// that lists what is accepted.
std::shared_ptr<CommHook> make_hook(const std::string& text);

}  // namespace yoke
