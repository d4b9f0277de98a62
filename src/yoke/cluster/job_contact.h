// How a program outside of a running job reaches it: `yoke ps top` and the like.
//
// The launcher of a job on one machine writes a contact file while the job runs: where its coordinator
// listens, but no key. The key is given to processes of the same user only (cluster/world_key.h).
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "yoke/base/deadline.h"
#include "yoke/cluster/session.h"
#include "yoke/cluster/world_key.h"

namespace yoke::cluster {

struct JobAddress {
  std::string endpoint;  // of the coordinator
  std::string job_id;
  int generation = 0;
  std::string protection = "integrity";
  // Reached by its endpoint, perhaps from another machine, with the key of this file ("" with protection
  // "none"); otherwise the launcher on this machine gives the key. Not in contact files.
  bool by_endpoint = false;
  std::string secret_file{};
  bool operator==(const JobAddress&) const = default;
};

std::string to_text(const JobAddress& address);
// Of a contact file. Throws ConfigError.
JobAddress parse_job_address(const std::string& text);

// Writes the contact file and gives the key away, until it is destroyed. Does not throw where the file cannot
// be written: a warning says so.
class JobBeacon {
 public:
  JobBeacon(std::filesystem::path file, const JobAddress& address, const net::Secret& secret);
  ~JobBeacon();

 private:
  std::filesystem::path file_;
  std::unique_ptr<KeyGiver> key_;
};

// Name of the contact file in the folder of a run.
inline constexpr const char* kContactFile = "job.json";

// A connection to the coordinator. Not thread-safe.
class JobContact {
 public:
  // `where`: the folder of a run, or a contact file. Throws ConfigError if no job runs there.
  static JobContact find(const std::filesystem::path& where, Deadline deadline);
  // Throws Error with kRendezvous: nobody answers there.
  JobContact(const JobAddress& address, const net::Secret& secret, Deadline deadline);
  ~JobContact();
  JobContact(JobContact&&) noexcept;

  struct Rank {
    Member member;
    bool ended = false;
  };
  // All throw CommError: the job has ended, no answer before the deadline.
  std::vector<Rank> ranks(Deadline deadline);
  // The first of `count` numbers for processes that join an elastic job; -1: its own ranks have not all
  // joined yet. Also throws CommError with the text that it refused with.
  int take_seats(int count, Deadline deadline);
  // A number for a rank that joins this job. Also throws CommError with the reason why there is none.
  struct Seat {
    int rank = 0;
    int at_start = 0;  // ranks that the job began with
  };
  Seat seat(Deadline deadline);
  const JobAddress& address() const;
  // What the rank answers. Also throws CommError with the text that it refused with.
  std::string ask(int rank, const std::string& question, Deadline deadline);

 private:
  struct Impl;
  explicit JobContact(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace yoke::cluster
