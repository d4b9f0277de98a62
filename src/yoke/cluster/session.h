// A rank's connection to the coordinator: key-value store, heartbeats, failure notification.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "yoke/base/deadline.h"
#include "yoke/cluster/departures.h"
#include "yoke/cluster/failure.h"
#include "yoke/cluster/whereabouts.h"
#include "yoke/net/connection.h"

namespace yoke::cluster {

// What the ranks of a job know about each other.
struct Member {
  int rank = 0;
  std::string host;     // host name, for messages
  std::string machine;  // identical for ranks on the same machine (boot id and namespaces), unique otherwise
  int64_t pid = 0;
  std::string address;  // where this rank accepts data connections
  std::string origin;   // source of rank and world size, for errors: "RANK=2, WORLD_SIZE=4 (torchrun)"
  int life = 0;         // restart count within the running job
  std::string role{};   // in this job, for messages: "parameter server 1"; empty: none
  // The number the launcher gave this process. It stays the same when ranks are renumbered (elastic jobs).
  int seat = -1;
  // Others have what it has: where it is expendable, it is evicted once it stalls, instead of waited for.
  bool replaceable = false;
};

// Who is in an elastic job, until somebody leaves or joins. Ranks are numbered anew in each.
struct Epoch {
  int number = 0;
  int rank = 0;  // of this process
  std::vector<Member> members{};
  std::string cause{};  // why the previous one ended; empty: ranks joined or left between two steps
  int losses = 0;       // of ranks, so far
  int joins = 0;        // of ranks into the running job, so far
  bool elastic = false;
  bool in_doubt = false;  // the previous one ended because of a link: the members check theirs (World)
};

// What a program knows of its job, and a launcher that hosts the coordinator does not: as in
// CoordinatorOptions, where they take precedence.
struct JobTraits {
  std::vector<bool> expendable{};  // by rank
  int late_ranks = 0;
};

class Session {
 public:
  // Joins the job: authenticates, registers and waits until all ranks have joined. Logs every few seconds
  // which ranks are missing and how long it will wait. Throws Error with kRendezvous: names missing or
  // duplicate ranks and the variables they came from.
  // `prepare` is called first if this rank joins a running elastic job, whose ranks train on meanwhile; once
  // it has returned they stop after a step, and wait for this rank.
  Session(const Whereabouts& coordinator, const net::JobTicket& ticket, const Member& self, int world_size,
          std::shared_ptr<Failure> failure, Deadline deadline, const JobTraits& traits = {},
          const std::function<void()>& prepare = {});
  ~Session();  // leaves normally, or reports a failure if an exception is unwinding

  const std::vector<Member>& members() const;  // by rank

  // Largest value in bytes.
  static constexpr size_t kMaxValue = (1 << 20) - 4096;

  // Thread-safe. Values are arbitrary bytes, at most kMaxValue. Throws CommError (job failed, deadline).
  void put(const std::string& key, const std::string& value, Deadline deadline);
  std::string get(const std::string& key, Deadline deadline);  // blocks until the key exists
  // Gathers everybody's value, by rank. Collective; the key must not be used otherwise. The coordinator keeps
  // nothing, so it may be called any number of times. Throws CommError as soon as a rank has left the job
  // without its value.
  std::vector<std::string> exchange(const std::string& key, const std::string& own, Deadline deadline);
  // The same among `ranks` only, in their order. This rank is one of them.
  std::vector<std::string> exchange(const std::string& key, const std::string& own, Deadline deadline,
                                    const std::vector<int>& ranks);

  // Sets what this rank is doing; sent with heartbeats, so that errors can name ranks that lag. Cheap; any
  // thread.
  void progress(int64_t operation, int64_t step);
  // Sets this rank's name in messages, beside its number: "parameter server 1", "stage 2".
  void take_role(const std::string& role);
  // Reports why this rank fails to all ranks; returns once it is sent (at most 0.2 s). `wait`: the operation
  // that failed, if any. Does not throw.
  void fail(const FailureReport& report, const Wait* wait = nullptr);
  // Which ranks have not started `operation`, for an error after a deadline: "rank 3 has not entered it (last
  // was number 16)". Does not throw: an unknown state is part of the text.
  std::string who_is_behind(int64_t operation, Deadline deadline);

  // Registers a source of long waits, polled with every heartbeat on the session's thread: `source` appends
  // the operations this rank has been in for at least kLongWait seconds, and must not block. An operation
  // that needs a rank that has left or closed its group fails the job within two heartbeats; a slow one is
  // logged now and then. Active until the result is destroyed, which must happen before the session is.
  static constexpr double kLongWait = 1;
  using WaitSource = std::function<void(std::vector<Wait>&)>;
  [[nodiscard]] std::shared_ptr<void> watch(WaitSource source);
  // Checks `wait` immediately instead of with the next heartbeat, because its connection broke.
  void look_at(const Wait& wait);
  // This rank has started `operations` operations of `group`, which has `size` ranks, and will start no more.
  void close_group(uint64_t group, int size, int64_t operations);

  // Answers questions that programs outside of the job ask this rank (cluster/job_contact.h). `handler` runs
  // on the session's thread and must not block; it calls `answer` once, now or later, from any thread, but
  // not after the session has ended. Active until the result is destroyed, before the session is.
  using Answer = std::function<void(const std::string& text)>;
  using QuestionHandler = std::function<void(const std::string& question, const Answer& answer)>;
  [[nodiscard]] std::shared_ptr<void> answer_questions(QuestionHandler handler);

  // Tells of ranks that were evicted although they are connected, earlier ones too: they are stopped, or out
  // of reach, and the job continues without them. `handler` runs on the session's thread, or on this one, and
  // must not block. Active until the result is destroyed, before the session is.
  using EvictionHandler = std::function<void(int rank, const std::string& why)>;
  [[nodiscard]] std::shared_ptr<void> watch_evictions(EvictionHandler handler);

  // ---- elastic jobs (CoordinatorOptions::elastic_min) ----
  const Epoch& epoch() const;
  // Pairs of ranks that cannot reach each other, the lower one first: the coordinator evicts the fewest ranks
  // such that those left are connected. One member tells it for all, and regroups like all.
  void report_cut_links(const std::vector<std::pair<int, int>>& cut, Deadline deadline);
  // Whether a rank waits to join: all ranks should agree on a step, and regroup after it.
  bool change_wanted() const;
  // Ends this rank's part in the epoch and waits until all others that are left have done so, then returns
  // with members() of the next epoch. Nothing of the previous epoch may be in use: communicators are
  // destroyed. `address`: where this rank accepts data connections from now on. `why`: the error that made it
  // leave the epoch; empty: all ranks agreed to. `failure` becomes that of the next epoch, once there is one.
  // A coordinator that is gone is looked for until `patience` has passed: started again, it takes up the job.
  // Throws CommError: too few ranks are left, this rank was evicted, no coordinator returned, deadline.
  void regroup(const std::string& address, const std::string& why, std::shared_ptr<Failure> failure,
               Deadline deadline, Deadline patience);

  struct Impl;

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace yoke::cluster
