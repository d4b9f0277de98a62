// Moves data between the ranks of one group.
//
// All ranks call the same operations in the same order. Operations return immediately and run in that order;
// wait() on the Pending. Until then buffers must stay valid and must not be accessed. One thread at a time
// per communicator (abandon(): any thread); several communicators are independent. A Pending must not outlive
// its communicator.
//
// Results are bit-identical on all ranks. Repeated runs combine contributions in the same order as well,
// except where tcp chooses its algorithm from measured link costs (ConnectOptions::measures_links) and where
// mpi or nccl choose theirs.
//
// Before data is used, the ranks compare what each of them called (operation, number, type, count, shape,
// reduction, root, name). A mismatch fails on every rank with an error that shows both calls.
//
// Operations throw ConfigError for arguments that are invalid on this rank alone (counts, root, types).
// wait() throws CommError if a peer or a link fails; the error names the rank that caused it.
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
  std::string_view name;           // shown in errors and compared across ranks: "bucket 3"
  std::span<const int64_t> shape;  // compared across ranks; empty: only the count is compared
  double timeout = 0;              // seconds; 0: the timeout of the communicator
  // Empty: chosen by size. An algorithm that the backend does not support fails the operation.
  std::optional<plan::Algorithm> algorithm;
};

// Traffic of this rank since the communicator was created: payload without headers.
struct Counters {
  int64_t operations = 0;
  int64_t bytes_sent = 0;
  int64_t bytes_received = 0;
  int64_t messages_sent = 0;
  // Used by the last collective. Empty: none has run, or the library below chooses (mpi, nccl).
  std::optional<plan::Algorithm> algorithm = std::nullopt;
};

class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual const std::string& name() const = 0;     // of the group: "world", "data", …
  virtual const std::string& backend() const = 0;  // "local", "shm", "tcp", "mpi", "nccl", "hierarchical"

  // Combines `data` over all ranks with `op`, in place, on every rank.
  virtual Pending all_reduce(Buffer data, ReduceOp op = ReduceOp::kSum, const OpOptions& options = {}) = 0;
  // Like all_reduce, with the result on `root` only; on other ranks `data` is unspecified afterwards.
  virtual Pending reduce(Buffer data, int root, ReduceOp op = ReduceOp::kSum,
                         const OpOptions& options = {}) = 0;

  // Combines the inputs and leaves part r of the result on rank r. Requires input.count == output.count *
  // size(). `output` may be part r of `input`; the rest of `input` is unchanged.
  virtual Pending reduce_scatter(ConstBuffer input, Buffer output, ReduceOp op = ReduceOp::kSum,
                                 const OpOptions& options = {}) = 0;

  // Concatenates the inputs of all ranks, in rank order, on every rank. `counts`: elements of each rank if
  // they differ; empty: all equal. `input` may alias this rank's part of `output`.
  virtual Pending all_gather(ConstBuffer input, Buffer output, std::span<const int64_t> counts = {},
                             const OpOptions& options = {}) = 0;

  // Sends part r of the input to rank r; part r of the output comes from rank r. Parts have count / size()
  // elements. Not in place.
  virtual Pending all_to_all(ConstBuffer input, Buffer output, const OpOptions& options = {}) = 0;

  // Copies `data` of `root` to every rank.
  virtual Pending broadcast(Buffer data, int root, const OpOptions& options = {}) = 0;
  // `output` (gather) and `input` (scatter) are used on the root only, where they have size() parts.
  virtual Pending gather(ConstBuffer input, Buffer output, int root, const OpOptions& options = {}) = 0;
  virtual Pending scatter(ConstBuffer input, Buffer output, int root, const OpOptions& options = {}) = 0;

  // Point to point, independent of the order of collectives. Sends and receives of the same peer and tag
  // match in the order of issue. Any number may be in flight in both directions. Requires peer != rank(), 0
  // <= tag < 65536.
  virtual Pending send(ConstBuffer data, int peer, int tag = 0, const OpOptions& options = {}) = 0;
  virtual Pending receive(Buffer data, int peer, int tag = 0, const OpOptions& options = {}) = 0;

  // Completes once every rank has called it.
  virtual Pending barrier(const OpOptions& options = {}) = 0;

  // Creates one group per `color`, its ranks ordered by (key, rank). Collective and blocking. color < 0: this
  // rank joins no group, returns nullptr.
  virtual std::unique_ptr<Communicator> split(int color, int key, const std::string& group_name) = 0;

  // Memory that this communicator, and those split from it, move without a copy. Not collective.
  virtual Memory allocate(size_t bytes) = 0;

  // One zeroed block of memory shared by all ranks; a write is visible to the others after the next
  // collective. Empty if the ranks do not share memory (several machines, GPUs). Collective and blocking.
  // Throws ConfigError if the sizes differ between ranks.
  virtual Memory allocate_common(size_t bytes) = 0;

  virtual Counters counters() const = 0;

  // Fails the job from this rank: on this rank all operations of all communicators of the job fail
  // immediately, in flight or later; on the other ranks they fail with `reason` and the number of this rank.
  // Buffers may be freed once each Pending has failed. Not collective; any thread; repeated calls have no
  // effect. Takes at most 0.2 s.
  virtual void abandon(const std::string& reason) noexcept = 0;
};

}  // namespace yoke::comm
