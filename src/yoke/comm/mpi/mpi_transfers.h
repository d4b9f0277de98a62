// Sends and receives over MPI. Part of the module only.
#pragma once

#include <mpi.h>

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "yoke/comm/backend.h"
#include "yoke/comm/mpi/mpi_library.h"

namespace yoke::comm::mpi {

// A transfer is a message with the descriptor, then the data in pieces that MPI can count, all under the
// transfer's tag: MPI keeps their order. The receiver takes data only after the descriptors agree.
class Transfers {
 public:
  Transfers(Library& library, MPI_Comm comm, int rank, std::shared_ptr<cluster::Failure> failure);

  bool advance(Transfer& transfer);
  void wait_for(std::span<Transfer* const> transfers, Deadline deadline);
  void wake();
  Counters counters() const;

 private:
  struct Notes {
    Descriptor theirs;  // in flight: what is sent, or where theirs arrives
    bool data_posted = false;
    std::vector<MPI_Request> requests;
  };

  void begin(Transfer& transfer);
  void post_data(const Transfer& transfer, Notes& notes);
  void compare(const Transfer& transfer, const Notes& notes);
  bool complete(Notes& notes);
  bool ready(const Transfer& transfer);

  Library& library_;
  MPI_Comm comm_;
  int rank_;
  std::shared_ptr<cluster::Failure> failure_;
  std::map<uint64_t, std::unique_ptr<Notes>> notes_;  // by Transfer::state, which is never 0 once begun
  uint64_t next_ = 1;
  mutable std::mutex mutex_;
  std::condition_variable woken_;
  bool wake_ = false;
  Counters counters_;
};

}  // namespace yoke::comm::mpi
