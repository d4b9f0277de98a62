// How a bucket of gradients is combined over ranks: as is, or compressed.
//
// A hook works in phases, so that buckets overlap: phase 0 of a bucket is called as soon as its last gradient
// exists, while backward continues; later phases are called after backward, phase 1 of every bucket in order,
// then phase 2 of those that want one, and so on. A phase starts by waiting for what the previous one issued.
// All ranks make the same calls in the same order.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "yoke/comm/communicator.h"

namespace yoke {

struct GradientBucket {
  int index = 0;                     // in order of readiness; the same on every rank
  torch::Tensor flat;                // all gradients concatenated, in memory of the communicator
  std::vector<torch::Tensor> parts;  // the same memory, each part in its parameter's shape
  std::vector<int64_t> offsets;      // of each part in `flat`, in elements
  int64_t elements = 0;              // of `flat`, including padding
  torch::TensorOptions options;      // of `flat`
  int64_t bytes() const { return elements * static_cast<int64_t>(options.dtype().itemsize()); }
  comm::Communicator* comm = nullptr;  // over the replicas
  double divisor = 1;                  // for the sum over all ranks
  comm::Pending pending;               // for hooks: what the next phase waits for
  double seconds = 0;                  // for hooks: duration of finished operations other than `pending`
};

class CommHook {
 public:
  virtual ~CommHook() = default;

  // Runs phase `phase` of the bucket. Returns true to be called again with the next phase, false once `flat`
  // holds the combined gradients. Throws CommError like the communicator.
  virtual bool advance(GradientBucket& bucket, int phase) = 0;

  // Buckets were divided anew: per-bucket state (error feedback) is invalid.
  virtual void forget_buckets() {}

  // Payload of this rank so far: as passed to the communicator, and uncompressed.
  int64_t bytes_compressed() const { return compressed_; }
  int64_t bytes_uncompressed() const { return uncompressed_; }
  int64_t bytes_saved() const { return uncompressed_ - compressed_; }

 protected:
  void count(const GradientBucket& bucket, int64_t compressed) {
    uncompressed_ += bucket.bytes();
    count_compressed(compressed);
  }
  void count_compressed(int64_t bytes) { compressed_ += bytes; }

 private:
  int64_t compressed_ = 0;
  int64_t uncompressed_ = 0;
};

// Parses `ddp.hook`: none fp16 bf16 powersgd:R topk:F sign int8. nullptr for none. Throws ConfigError that
// lists what is accepted.
std::shared_ptr<CommHook> make_hook(const std::string& text);

// The type that gradients are cast to (fp16, bf16); nothing for other hooks, which do more than a cast.
std::optional<torch::ScalarType> cast_of_hook(const std::string& text);

}  // namespace yoke
