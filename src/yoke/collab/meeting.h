// What peers agree on: who is in, how many samples of the next step are done, and who sums what.
//
// A state machine without I/O: requests of links in, replies out, time as an argument (one clock, that of the
// meeting point: clocks of peers do not matter). meeting_server.h connects it to sockets. The protocol is
// JSON, one reply per request, some of them later:
//
//   hello {version, run{}, key, host, address, bandwidth}  → challenge {nonce} | refused {why}
//   prove {signature}                  → welcome {peer, epoch, steps}
//   work {epoch, want, done?{samples, loss, seconds}, link?{donor, rate}}    (`link`: measured by a download)
//        → lease {first, count}        compute these samples of the run's order
//        | average {round}             the batch is full: average with these members
//        | restart {epoch, own, donors[]}  forget accumulated gradients; if the epoch differs, fetch the
//        state
//                                      from a donor (`own`: nobody has one yet, so the peer's own is the
//                                      run's)
//        | wait {} | over {epoch} | ended {why}
//   result {epoch, attempt, complete, lost[{peer, why}], outliers[{peer, score}]}
//        → commit {epoch, loss} | average {round} | restart | wait | ended
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

#include "yoke/collab/meeting_record.h"
#include "yoke/collab/options.h"
#include "yoke/collab/robust.h"

namespace yoke::collab {

inline constexpr int kProtocolVersion = 1;

// What a peer signs to prove its identity.
inline std::string proof_text(const std::string& nonce) {
  return "yoke collab hello " + nonce;
}

struct MeetingOptions {
  nlohmann::json run;  // flat: what all peers must have in common, by key
  int64_t steps = 1;
  int64_t elements = 0;  // of a gradient
  int64_t target_batch = 1;
  Robust robust = Robust::kNone;
  int suspects = 0;
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
  // Where the run is; run_id is empty.
  MeetingRecord record() const;

 private:
  struct Range {
    int64_t first = 0, count = 0;
  };
  struct Peer {
    int number = -1;
    std::string key, host, address;
    double bandwidth = 0;  // as it says, or measured; 0: unknown
    bool says_bandwidth = false;
    bool client_only = false;
    int link = -1;  // -1: not here
    int64_t epoch = -1;
    std::vector<Range> done;  // of this epoch
    int64_t samples = 0;      // of `done`
    std::optional<Range> lease;
    double lease_ends = 0;
    double hold_until = 0;          // the others wait so long for it to fetch the state
    bool held = false;              // they did, since its last step
    bool discarded = false;         // its samples of this epoch were given to others
    std::optional<int64_t> wanted;  // a work request waits for its reply
    double asked = 0;
    double heard = 0;
    int64_t total_samples = 0;
    double rate = 0;  // samples per second
    double share = 0;
    double outlier = 0;
    int64_t times_dropped = 0;
    std::string why_dropped;
  };
  struct Round {
    int attempt = 0;
    double begun = 0, ends = 0;
    std::vector<int> members;    // numbers
    std::vector<int64_t> parts;  // elements that each sums, as long as nobody leaves
    std::set<int> complete, incomplete;
    std::map<int, std::map<int, std::string>> blamed;  // peer: by whom, why
    std::map<int, std::vector<double>> outliers;
  };

  void reply(int link, nlohmann::json message, bool close = false);
  void hello(int link, const nlohmann::json& message);
  void prove(int link, const nlohmann::json& message, double now);
  void work(Peer& peer, const nlohmann::json& message, double now);
  void result(Peer& peer, const nlohmann::json& message, double now);
  void leave(Peer& peer, double now);

  Peer* by_link(int link);
  Peer* by_key(const std::string& key);
  void take_rate(Peer& peer, const nlohmann::json& link);
  void take_report(Peer& peer, const nlohmann::json& done, double now);
  void serve(Peer& peer, double now);  // replies to its work request if there is something to say
  bool grant(Peer& peer, double now);
  void drop(Peer& peer, const std::string& why);  // out of this epoch
  void take_back(Peer& peer);
  nlohmann::json restart_reply(const Peer& peer) const;
  bool somebody_has_the_state() const;
  nlohmann::json catch_up_reply(Peer& peer, double now);
  void start_round_if_ready(double now);
  void start_attempt(std::vector<int> members, int attempt, double now);
  void reinstate_reducers();
  nlohmann::json round_for(const Peer& peer) const;
  void decide_if_all_voted(double now);
  void commit(double now);
  void try_again(double now);
  void check_quorum(double now);
  void take_up_if_known(double now);
  int64_t position_of(int64_t epoch) const;
  void end(const std::string& failure);
  uint64_t pair_token(int from, int to) const;

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
  std::string token_key_;
  double loss_sum_ = 0;
  std::vector<double> losses_;  // of finished steps
  double started_, quorum_since_;
  int64_t repeated_ = 0;
  bool over_ = false;
  std::string failure_;
};

}  // namespace yoke::collab
