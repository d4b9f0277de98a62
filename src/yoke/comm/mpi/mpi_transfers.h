// Point-to-point transfers over MPI. Part of the module only.
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

// A transfer consists of a message with the descriptor and then the data, split so that counts fit an int,
// all under the transfer's tag; MPI keeps their order. The receiver posts data only after the descriptors
// agree. Thread-safety as Backend::advance; wake(): any thread.
class Transfers {
 public:
  Transfers(Library& library, MPI_Comm comm, int rank, std::shared_ptr<cluster::Failure> failure);

  bool advance(Transfer& transfer);
  void wait_for(std::span<Transfer* const> transfers, Deadline deadline);
  void wake();
  Counters counters() const;

 private:
  // State of a transfer. Kept at a fixed address, because MPI writes to it asynchronously.
  struct Notes {
    Descriptor theirs;  // in flight: our own (send), or the one received (receive)
    bool data_posted = false;
    std::vector<MPI_Request> requests;
  };

  void begin(Transfer& transfer);
  void post_data(const Transfer& transfer, Notes& notes);
  void compare(const Transfer& transfer, const Notes& notes);
  // Tests all requests of a transfer without blocking.
  bool complete(Notes& notes);
  bool ready(const Transfer& transfer);

  Library& library_;
  MPI_Comm comm_;
  int rank_;
  std::shared_ptr<cluster::Failure> failure_;
  std::map<uint64_t, std::unique_ptr<Notes>> notes_;  // by Transfer::state, which is not 0 once started
  uint64_t next_ = 1;
  mutable std::mutex mutex_;
  std::condition_variable woken_;
  bool wake_ = false;
  Counters counters_;
};

}  // namespace yoke::comm::mpi
