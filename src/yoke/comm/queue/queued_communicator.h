// Implements Communicator on top of a blocking Backend: numbers, describes, records and orders operations,
// and turns failures into one error that names the cause.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "yoke/cluster/session.h"
#include "yoke/comm/backend.h"
#include "yoke/comm/communicator.h"
#include "yoke/comm/flight_recorder.h"

namespace yoke::comm {

// Connects a communicator to its job. Functions may be called from any thread; empty ones are skipped.
struct JobLink {
  std::shared_ptr<cluster::Failure> failure;  // required
  std::shared_ptr<FlightRecorder> recorder;   // required
  // This rank has started operation `number` of the group.
  std::function<void(int64_t number)> entered;
  // Reports a failure of this rank, and the operation it happened in, to the whole job.
  std::function<void(const cluster::FailureReport&, const cluster::Wait&)> fail;
  // As Session::watch, Session::look_at and Session::close_group.
  std::function<std::shared_ptr<void>(cluster::Session::WaitSource)> watch;
  std::function<void(const cluster::Wait&)> look_at;
  std::function<void(uint64_t group, int size, int64_t operations)> closed;
  // Names the ranks that have not started `number`, for the error after a deadline.
  std::function<std::string(int64_t number)> who_is_behind;
  // Folder for the flight record when an operation fails; empty: not written.
  std::filesystem::path flight_folder;
};

struct GroupInfo {
  std::string name = "world";
  int rank = 0;
  int size = 1;
  uint64_t id = 1;           // unique among all groups of a job
  double timeout = 300;      // seconds per operation
  std::vector<int> ranks{};  // ranks in the job, by rank in the group; empty: unknown
};

// Describes what a rank in this operation waits for; `peer` (rank in the group): for that peer only.
cluster::Wait wait_of(const Descriptor& descriptor, const GroupInfo& group, int peer = -1);

std::unique_ptr<Communicator> make_queued(std::unique_ptr<Backend> backend, GroupInfo group, JobLink job);

// The backend of a communicator made by make_queued(), for benchmarks; nullptr for others. Use it only while
// no operation is in flight.
Backend* backend_below(Communicator& comm);

}  // namespace yoke::comm
