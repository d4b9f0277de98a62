// A rank's place among those that train together, and its links to them.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>

#include "yoke/cluster/job_contact.h"
#include "yoke/cluster/launcher/launcher.h"
#include "yoke/cluster/world.h"
#include "yoke/comm/communicator.h"
#include "yoke/comm/messenger.h"
#include "yoke/optim/options.h"
#include "yoke/parallel/choices.h"

namespace yoke::comm {
class LocalSummation;
}

namespace yoke::parallel {

class HostedServer;

struct JoinRequest {
  const Choices& choices;
  const optim::OptimizerOptions& optimizer;
  std::filesystem::path out;   // the run's folder
  bool gpu = false;            // over NCCL, unless parallel.backend says otherwise
  bool deterministic = false;  // reductions in an order that does not depend on measured links
  bool elastic = false;        // ranks may leave and join (parallel/elastic.h)
  int elastic_min = 1;
  // Called if this rank joins a running elastic job, before the others wait for it.
  std::function<void()> prepare{};
};

class Membership {
 public:
  // Joins the job that the environment names, as a worker. A process that was started alone is a world of
  // one. Collective. Throws ConfigError, CommError.
  explicit Membership(const JoinRequest& request);
  // Joins a running job with servers, as its next worker. Throws ConfigError, CommError, Error with
  // kRendezvous.
  Membership(const JoinRequest& request, cluster::JobContact job);
  ~Membership();
  Membership(Membership&&) noexcept;

  // Elastic jobs, after a CommError or by agreement: leaves this epoch's communicator and waits for the next
  // epoch (cluster::World::regroup). What uses world() must be destroyed before. CommError: the job is over.
  void regroup(const std::string& why);
  // Creates world() of the epoch, also of the first. Collective. Throws CommError, or Error with kRendezvous:
  // regroup.
  void connect(const JoinRequest& request);

  int rank() const { return job_->rank(); }
  int workers() const { return workers_; }  // at the start
  // This rank among the workers. Another number than its rank if it has joined later.
  int worker() const { return late_worker_.value_or(rank()); }
  bool late() const { return late_worker_.has_value(); }
  bool first() const { return rank() == 0; }
  cluster::World& job() { return *job_; }
  // Of the workers. Null: they talk to servers alone.
  comm::Communicator* world() const { return comm_.get(); }
  comm::Messenger* messenger() const { return messenger_.get(); }  // to servers; null: there are none
  HostedServer* server() const { return server_.get(); }           // that lives in this process

 private:
  std::unique_ptr<cluster::World> job_;
  int workers_ = 1;
  std::optional<int> late_worker_;
  std::unique_ptr<comm::Communicator> everyone_;  // hybrid: workers and spare ranks; comm_ uses it
  std::unique_ptr<comm::Communicator> comm_;
  std::unique_ptr<comm::Messenger> messenger_;
  std::unique_ptr<HostedServer> server_;
};

// Ranks that are threads of this process, and what else their strategy needs.
class LocalJob {
 public:
  LocalJob(const Choices& choices, const optim::OptimizerOptions& optimizer, int workers);
  ~LocalJob();
  comm::Messenger* messenger(int worker) const;  // null: no servers
  // The communicator of a worker, if it is not the one that it has: null. Collective over the workers.
  std::unique_ptr<comm::Communicator> world(int worker) const;
  // Once all workers have ended. Throws CommError.
  void finish();

 private:
  std::unique_ptr<class LocalServers> servers_;
  std::unique_ptr<comm::LocalSummation> summation_;
};

// Workers among `ranks` ranks of a job. Throws ConfigError where the two do not go together.
int workers_of(const Choices& choices, int ranks);

// Ranks of a job with that many workers. Throws ConfigError.
int ranks_of(const Choices& choices, int workers);

// The job on this machine for that many workers, and what else they need. `resumes`: whether ranks that start
// again now resume from a checkpoint; empty: never. Throws ConfigError.
cluster::LaunchOptions job_of(const Choices& choices, int workers, const std::vector<std::string>& words,
                              std::function<bool()> resumes = {});

// Whether replicas are threads of one process instead of ranks.
bool in_one_process(const Choices& choices);

// Whether the job has parameter servers.
bool has_servers(const Choices& choices);

// Whether this rank of a launcher's world is no worker.
bool only_serves(const Choices& choices);

// Its whole life. Returns the exit code.
int serve_others(const JoinRequest& request);
// One more parameter server of a running job, until it ends. `joined` is called with its number once it is
// connected; returned, too. Throws ConfigError, CommError, Error with kRendezvous.
int serve_running_job(const JoinRequest& request, cluster::JobContact job,
                      const std::function<void(int server)>& joined);

}  // namespace yoke::parallel
