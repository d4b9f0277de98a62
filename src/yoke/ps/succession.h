// Which server serves the ranges of a lost one (ps.replicas).
//
// The ranges of each server, its home, are held by a chain of servers: the first `replicas` + 1 that are
// alive, counted from itself around the end. The first of them serves the ranges. This is a function of the
// servers that are lost: every worker and server computes it without asking. A lost server stays lost. A
// server that enters a chain because of a loss gets its copy while training continues; if it would have to
// serve before, the ranges are lost, which it knows by itself.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace yoke::ps {

class Succession {
 public:
  static constexpr int kNobody = -1;

  // Throws ConfigError unless 0 <= replicas < servers.
  Succession(int servers, int replicas);

  int servers() const { return static_cast<int>(lost_.size()); }
  int replicas() const { return replicas_; }
  bool is_lost(int server) const { return lost_[static_cast<size_t>(server)]; }
  int64_t lost() const;
  // False: it was lost already.
  bool lose(int server);

  // The server that serves these ranges now; kNobody: none is left.
  int owner(int home) const;
  // The server that is to hold what `server` holds of these ranges; kNobody: `server` is the last of the
  // chain.
  int next(int home, int server) const;
  // Whether `server` is in the chain of these ranges, or was before it was lost.
  bool holds(int home, int server) const { return living_before(home, server) <= replicas_; }
  // Whether it was in the chain before any server was lost.
  bool held_from_start(int home, int server) const { return place(home, server) <= replicas_; }
  // Copies besides the owner's, once they are made.
  int copies(int home) const;
  // A home that nobody serves; kNobody: there is none.
  int orphan() const;
  // The lost servers that have served these ranges, or would have.
  std::vector<int> lost_before_owner(int home) const;

 private:
  int place(int home, int server) const { return (server - home + servers()) % servers(); }
  int at(int home, int place) const { return (home + place) % servers(); }
  // Servers that are alive, before `server` in the order of this home.
  int living_before(int home, int server) const;

  int replicas_;
  std::vector<bool> lost_;
};

}  // namespace yoke::ps
