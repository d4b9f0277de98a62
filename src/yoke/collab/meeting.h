// What peers agree on: who is in, how many samples of the next step are done, and who sums what.
//
// A state machine without I/O: requests of links in, replies out, time as an argument (one clock, that of the
// meeting point: clocks of peers do not matter). meeting_server.h connects it to sockets. The protocol is
// JSON, one reply per request, some of them later:
//
//   hello {version, run{}, key, host, address, upload, download}  → challenge {nonce} | refused {why}
//   prove {signature}                  → welcome {peer, epoch, steps}
//   work {epoch, want, done?{samples, loss, seconds}, probe?{with, upload, download}}    (`probe`:
//   link_probe.h)
//        → lease {first, count}        compute these samples of the run's order, `want` at a time
//        | average {round}             the batch is full: average with these members
//        | restart {epoch, own, donors[]}  forget accumulated gradients; if the epoch differs, fetch the
//        state
//                                      from a donor (`own`: nobody has one yet, so the peer's own is the
//                                      run's)
//        | wait {} | over {epoch} | ended {why}
//   result {epoch, attempt, complete, lost[{peer, why}], outliers[{peer, score, distance}], usual_size,
//           received[{peer, bytes, seconds}]}
//        → commit {epoch, loss, lease?{first, count}} | average {round} | restart | wait | ended
//   leave {}                           → bye {}
//   watch {}                           → status {…}
//
// The batch is exact: samples are leased until done + leased = target. Samples of a peer that disappears
// before they are averaged are leased again. One thread.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "yoke/collab/balance.h"
#include "yoke/collab/grid.h"
#include "yoke/collab/meeting_record.h"
#include "yoke/collab/options.h"
#include "yoke/collab/robust.h"
#include "yoke/collab/roles.h"

namespace yoke::collab {

inline constexpr int kProtocolVersion = 4;

// What a peer signs to prove its identity.
inline std::string proof_text(const std::string& nonce) {
  return "yoke collab hello " + nonce;
}

// "upload" and "download" of a message. Throws BadMessage.
LinkSpeed speed_field(const nlohmann::json& message);

struct MeetingOptions {
  nlohmann::json run;  // flat: what all peers must have in common, by key
  int64_t steps = 1;
  int64_t elements = 0;  // of a gradient
  int64_t target_batch = 1;
  Robust robust = Robust::kNone;
  int suspects = 0;
  RolePolicy roles = RolePolicy::kAuto;
  int64_t group_size = 0;  // more peers average on a grid of groups (grid.h); 0: by their number
  int64_t min_peers = 1;
  double timeout = 15;
  double quorum_timeout = 600;
  // A run whose meeting point died: nobody works until peers have said at which step they are. `known`: from
  // the record of that meeting point, if there is one; steps that are not listed used whole batches.
  bool returns = false;
  std::vector<Position> known;
};

class Meeting {
 public:
  Meeting(MeetingOptions options, double now);

  // A request of a link. A malformed one closes the link, and costs nobody else anything.
  void request(int link, const nlohmann::json& message, double now);
  void closed(int link, double now);
  // Call it at least every kTick seconds: deadlines, and replies to waiting peers.
  static constexpr double kTick = 0.05;
  void tick(double now);

  struct Reply {
    int link = -1;
    nlohmann::json message;
    bool close = false;  // afterwards
  };
  std::vector<Reply> take_replies() { return std::exchange(replies_, {}); }

  // For people: docs/cli.md, `yoke collab watch`.
  nlohmann::json status(double now) const;
  bool ended() const { return over_ || !failure_.empty(); }
  int present() const;  // peers with an open link
  int working() const;  // of these, peers that have the state
  // Where the run is; run_id is empty.
  MeetingRecord record() const;

 private:
  struct Range {
    int64_t first = 0, count = 0;
  };
  struct Peer {
    int number = -1;
    std::string key, host, address;
    LinkSpeed says, measured;
    bool client_only = false;
    bool computes = true;
    int link = -1;  // -1: not here
    int64_t epoch = -1;
    std::vector<Range> done;  // of this epoch
    int64_t samples = 0;      // of `done`
    std::optional<Range> lease;
    double lease_begun = 0, lease_ends = 0;  // given back at the end
    double hold_until = 0;                   // the others wait so long for it to fetch the state
    int fetches = 0;                         // of the state, since its last step
    bool discarded = false;                  // its samples of this epoch were given to others
    int64_t batch = 1;                       // samples that it computes at a time
    std::optional<int64_t> wanted;           // a work request waits for its reply
    double asked = 0;
    double heard = 0;
    int64_t total_samples = 0;
    double rate = 0;      // samples per second
    double overhead = 0;  // seconds of a lease beyond computing: messages, the optimizer
    double share = 0;
    double outlier = 0;
    int far_steps = 0;           // in a row in which its gradient was far from those of the others
    int64_t diverged_at = -1;    // step at which its loss was not finite
    int64_t times_diverged = 0;  // in that step
    int64_t times_dropped = 0;
    std::string why_dropped;
    std::string excluded;  // for good, and why
  };
  struct Outlier {
    double score, distance;  // robust.h
  };
  struct Received {
    int from, to;
    double bytes, seconds;
  };
  // Peers that average together, and what each gives.
  struct Group {
    size_t bundle = 0;
    std::vector<int> members;  // numbers
    std::vector<double> weights;
    std::vector<int64_t> parts;  // elements that each sums
    int attempt = 0;
    bool contains(int number) const;
  };
  // The averaging of a step, in as many phases as the grid has axes. A phase ends when all groups are done.
  struct Round {
    int phase = 0, attempts = 0, failures = 0;
    double begun = 0, ends = 0;
    std::vector<int> members;        // numbers
    std::vector<GridClass> classes;  // as the phase began
    std::vector<GridBundle> bundles;
    std::vector<Group> groups;
    std::set<int> complete, incomplete;                // in this phase
    std::map<int, std::map<int, std::string>> blamed;  // peer: by whom, why
    size_t group_size = 0;                             // at most about so many average together
    std::map<int, std::map<int, Outlier>> outliers;    // peer: by whom
    std::map<int, double> usual_sizes;                 // by whom
    std::vector<Received> received;
  };

  void reply(int link, nlohmann::json message, bool close = false);
  void hello(int link, const nlohmann::json& message);
  void prove(int link, const nlohmann::json& message, double now);
  void work(Peer& peer, const nlohmann::json& message, double now);
  void result(Peer& peer, const nlohmann::json& message, double now);
  void leave(Peer& peer, double now);

  Peer* by_link(int link);
  Peer* by_key(const std::string& key);
  static LinkSpeed speed_of(const Peer& peer);
  Link link_of(const Peer& peer) const;
  void take_probe(Peer& peer, const nlohmann::json& probe);
  void take_received(const Peer& peer, const nlohmann::json& received);
  void learn_from_round();
  void assign_roles();
  void take_report(Peer& peer, const nlohmann::json& done, double now);
  void end_if_diverged();
  void serve(Peer& peer, double now);  // replies to its work request if there is something to say
  bool grant(Peer& peer, double now);
  int64_t guided_count(const Peer& peer, int64_t left, double now) const;
  bool counts_on(const Peer& peer, double now) const;
  static double free_at(const Peer& peer, double rate, double now);
  double finish_together(int64_t left, double now) const;
  double finish_without(const Peer& peer, int64_t left, double now) const;
  void drop(Peer& peer, const std::string& why);  // out of this epoch
  void take_back(Peer& peer);
  nlohmann::json restart_reply(const Peer& peer) const;
  bool somebody_has_the_state() const;
  bool somebody_fetches_the_last_state(double now) const;
  nlohmann::json catch_up_reply(Peer& peer, double now);
  void start_round_if_ready(double now);
  void start_round(std::vector<int> members, double now);
  void start_phase(double now);
  Group group_of(const GridBundle& bundle, size_t index, const GridGroup& group) const;
  void start_group(Group& group, double now);
  Group* group_with(int number);
  void leave_round(int number);
  bool can_sum(int number) const;
  bool reinstate_reducers(const std::vector<int>& members);
  nlohmann::json round_for(const Peer& peer, const Group& group) const;
  bool all_voted(const Group& group) const;
  bool can_try_again(const Group& group) const;
  void decide_if_all_voted(double now);
  void finish_phase(double now);
  size_t group_size_for(size_t peers) const;
  void judge_outliers();
  void judge_outliers(const Group& group);
  void exclude(Peer& peer, double now);
  void commit(double now);
  void try_again(Group& group, double now);
  void blame_worst(Group& group);
  void regroup(size_t bundle, double now);
  void give_up_round();
  void check_quorum(double now);
  int64_t newest_to_fetch(int64_t last) const;
  void take_up_if_known(double now);
  void go_back_or_end();
  void forget_samples();  // of all peers
  int64_t position_of(int64_t epoch) const;
  void end(const std::string& failure);
  uint64_t pair_token(int attempt, int from, int to) const;
  static const char* role_of(const Peer& peer);

  MeetingOptions options_;
  std::deque<Peer> peers_;  // by number
  struct Applicant {
    nlohmann::json hello;
    std::string nonce;
  };
  std::map<int, Applicant> applicants_;  // by link
  std::vector<Reply> replies_;
  int64_t epoch_ = 0;
  int64_t next_sample_ = 0;
  int64_t begun_at_ = 0;  // next_sample_ when this step began
  Position previous_;
  bool taking_up_ = false;
  std::vector<Range> returned_;
  int64_t done_ = 0, leased_ = 0;
  double full_since_ = -1;
  std::optional<Round> round_;
  bool roles_are_old_ = true;
  std::string token_key_;
  double usual_size_ = 0;  // of a gradient, the largest of any step
  double loss_sum_ = 0;
  std::vector<double> losses_;  // of finished steps
  double started_, quorum_since_;
  int64_t repeated_ = 0;
  bool over_ = false;
  double over_since_ = 0;
  std::string failure_;
};

}  // namespace yoke::collab
