// Wraps the MPI library: initialisation, errors as CommError, datatypes and reductions. Part of the module
// only.
#pragma once

#include <mpi.h>

#include <atomic>
#include <memory>

#include "yoke/comm/mpi/mpi.h"

namespace yoke::comm::mpi {

// Throws CommError with MPI's error text unless `code` is MPI_SUCCESS.
void check(int code, const char* call);

// MPI in this process. Initialised on first use; finalised at exit if every rank gets there within the
// timeout and nothing has failed.
class Library {
 public:
  // Throws CommError: MPI cannot be initialised, or does not provide MPI_THREAD_MULTIPLE.
  static Library& use(const MpiSetup& setup);

  // After a failure: requests that MPI cannot cancel stay open, so nothing may be started or freed any more.
  void give_up() { broken_ = true; }
  bool usable() const { return !broken_ && !finalized_; }

 private:
  explicit Library(const MpiSetup& setup);
  void leave();

  std::shared_ptr<cluster::Failure> failure_;
  double timeout_;
  bool ours_ = false;  // initialised by us, not by the program
  std::atomic<bool> broken_{false};
  std::atomic<bool> finalized_{false};
};

// fp16 and bf16 are sent as 16-bit integers; only our own reductions see them.
MPI_Datatype datatype_of(DataType type);

// kMean is a sum here. MPI's own operation where it computes what Communicator promises; ours for fp16 and
// bf16 (accumulated in fp32, in rank order) and for floating-point max and min (NaN propagates).
MPI_Op op_of(DataType type, ReduceOp op);

}  // namespace yoke::comm::mpi
