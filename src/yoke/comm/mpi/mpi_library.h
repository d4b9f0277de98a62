// MPI itself as the module sees it: started once, its errors as CommError, its names for our types. Part of
// the module only.
#pragma once

#include <mpi.h>

#include <atomic>
#include <memory>

#include "yoke/comm/mpi/mpi.h"

namespace yoke::comm::mpi {

// Throws CommError with MPI's own words unless `code` is MPI_SUCCESS.
void check(int code, const char* call);

// MPI of this process. Initialised by the first use; finalised at exit when every rank comes there within the
// timeout and nothing has failed.
class Library {
 public:
  // Throws CommError: MPI cannot start or has no MPI_THREAD_MULTIPLE.
  static Library& use(const MpiSetup& setup);

  // After a failure requests stay open that MPI cannot take back: nothing may be started or freed any more.
  void give_up() { broken_ = true; }
  bool usable() const { return !broken_ && !finalized_; }

 private:
  explicit Library(const MpiSetup& setup);
  void leave();

  std::shared_ptr<cluster::Failure> failure_;
  double timeout_;
  bool ours_ = false;  // not the program's own MPI_Init
  std::atomic<bool> broken_{false};
  std::atomic<bool> finalized_{false};
};

// fp16 and bf16 travel as 16-bit integers: they only meet our own reductions.
MPI_Datatype datatype_of(DataType type);

// kMean is a sum. MPI's own where it computes what we promise; ours for fp16 and bf16 (in fp32, in the order
// of ranks) and for max and min of floating point (NaN goes through).
MPI_Op op_of(DataType type, ReduceOp op);

}  // namespace yoke::comm::mpi
