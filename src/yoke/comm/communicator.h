// Moves data between the ranks of one group.
//
// All ranks call the same operations in the same order. Operations return at once and are carried out in that
// order; wait() on the result. Buffers must stay, and must not be touched, until then. One thread at a time
// calls a communicator; several communicators are independent. A Pending must not outlive its communicator.
// Results are the same bits on every rank and in every run: contributions are combined in an order that
// depends on nothing but the sizes.
//
// Before data is used, what each rank asked for (operation, number, type, count, shape, reduction, root,
// name) is compared: a rank that asked for something else is an error on every rank that shows both sides.
//
// Every operation throws ConfigError for a request that cannot be right on this rank alone (counts, root,
// types), and its Pending throws CommError when a peer or a link failed, with the culprit's name.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "yoke/comm/buffer.h"
#include "yoke/comm/pending.h"
#include "yoke/plan/collectives/steps.h"

namespace yoke::comm {

struct OpOptions {
  std::string_view name;           // shown in errors and compared over ranks: "bucket 3"
  std::span<const int64_t> shape;  // compared over ranks; empty: only the count is
  double timeout = 0;              // seconds; 0: the communicator's
  std::optional<plan::Algorithm>
      algorithm;  // otherwise chosen by size; an error where the backend has no such choice
};

// What this rank has moved since the communicator was made: payload, not headers.
struct Counters {
  int64_t operations = 0;
  int64_t bytes_sent = 0;
  int64_t bytes_received = 0;
  int64_t messages_sent = 0;
  // That the last collective ran by; none: there was none, or a library below decides (mpi, nccl).
  std::optional<plan::Algorithm> algorithm = std::nullopt;
};

class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual const std::string& name() const = 0;     // of the group: "world", "data", …
  virtual const std::string& backend() const = 0;  // "local", "shm", "tcp", "mpi", "nccl", "hierarchical"

  // data = op over all ranks, on every rank (reduce: on `root`; elsewhere `data` is unspecified after it).
  virtual Pending all_reduce(Buffer data, ReduceOp op = ReduceOp::kSum, const OpOptions& options = {}) = 0;
  virtual Pending reduce(Buffer data, int root, ReduceOp op = ReduceOp::kSum,
                         const OpOptions& options = {}) = 0;

  // Part r of the combined input, on rank r. Requires input.count = output.count * size. `output` may be part
  // r of `input`; the rest of `input` is left as it was.
  virtual Pending reduce_scatter(ConstBuffer input, Buffer output, ReduceOp op = ReduceOp::kSum,
                                 const OpOptions& options = {}) = 0;

  // The inputs of all ranks one after the other, on every rank. `counts`: elements of each rank where they
  // differ; empty: all alike. `input` may be this rank's place in `output`.
  virtual Pending all_gather(ConstBuffer input, Buffer output, std::span<const int64_t> counts = {},
                             const OpOptions& options = {}) = 0;

  // Part r of the input goes to rank r; part r of the output came from rank r. Parts of size count / size.
  // Not in place.
  virtual Pending all_to_all(ConstBuffer input, Buffer output, const OpOptions& options = {}) = 0;

  virtual Pending broadcast(Buffer data, int root, const OpOptions& options = {}) = 0;
  // `output` counts on the root only, with size * input.count elements; likewise `input` of scatter.
  virtual Pending gather(ConstBuffer input, Buffer output, int root, const OpOptions& options = {}) = 0;
  virtual Pending scatter(ConstBuffer input, Buffer output, int root, const OpOptions& options = {}) = 0;

  // Between two ranks, apart from the order of collectives: a send meets the receive of the same tag, in
  // order of issue. Any number may be under way in both directions. Requires peer != rank(), 0 <= tag <
  // 65536.
  virtual Pending send(ConstBuffer data, int peer, int tag = 0, const OpOptions& options = {}) = 0;
  virtual Pending receive(Buffer data, int peer, int tag = 0, const OpOptions& options = {}) = 0;

  // Done when every rank has come here.
  virtual Pending barrier(const OpOptions& options = {}) = 0;

  // A group of those who give the same `color`, in the order of (key, rank). Collective: everybody calls it;
  // waits. color < 0: part of no group, returns nullptr.
  virtual std::unique_ptr<Communicator> split(int color, int key, const std::string& group_name) = 0;

  // Memory that this communicator (and those split from it) moves without a copy. Not collective.
  virtual Memory allocate(size_t bytes) = 0;

  // One piece of memory for all ranks, zeroed: what one of them writes the others see after the next
  // operation of all. No data where ranks do not share memory (machines, GPUs). Collective: everybody asks
  // for the same size; waits.
  virtual Memory allocate_common(size_t bytes) = 0;

  virtual Counters counters() const = 0;
};

}  // namespace yoke::comm
