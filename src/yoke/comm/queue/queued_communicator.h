// Gives a blocking Backend the face of a Communicator: numbers and describes each operation, records it, runs
// it in order, and turns what goes wrong into one error that names the culprit.
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

// How a communicator talks to the rest of its job. All may be called from any thread; empty ones are skipped.
struct JobLink {
  std::shared_ptr<cluster::Failure> failure;  // required
  std::shared_ptr<FlightRecorder> recorder;   // required
  // This rank now works on operation `number` of the group's ranks.
  std::function<void(int64_t number)> entered;
  // Tells everybody that this rank cannot go on, and in which operation.
  std::function<void(const cluster::FailureReport&, const cluster::Wait&)> fail;
  // As Session::watch, Session::look_at and Session::close_group.
  std::function<std::shared_ptr<void>(cluster::Session::WaitSource)> watch;
  std::function<void(const cluster::Wait&)> look_at;
  std::function<void(uint64_t group, int size, int64_t operations)> closed;
  // Who has not entered `number` yet, as a sentence; for the error after a deadline.
  std::function<std::string(int64_t number)> who_is_behind;
  // Where the recorder is written when an operation fails; empty: nowhere.
  std::filesystem::path flight_folder;
};

struct GroupInfo {
  std::string name = "world";
  int rank = 0;
  int size = 1;
  uint64_t id = 1;           // differs between all groups of a job
  double timeout = 300;      // seconds an operation may take
  std::vector<int> ranks{};  // of the job, by rank of the group; empty: not known
};

// What a rank in this operation waits for; `peer` of the group: that one only.
cluster::Wait wait_of(const Descriptor& descriptor, const GroupInfo& group, int peer = -1);

std::unique_ptr<Communicator> make_queued(std::unique_ptr<Backend> backend, GroupInfo group, JobLink job);

// What a communicator of make_queued() stands on, for benchmarks; nullptr for others. To be used while no
// operation is under way.
Backend* backend_below(Communicator& comm);

}  // namespace yoke::comm
