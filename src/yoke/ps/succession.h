// Which server serves the ranges of a lost one (ps.replicas).
//
// The ranges of each server, its home, are held by a chain of servers: itself and the `replicas` that follow
// it, around the end. The first of them that is alive serves the ranges. This is a function of the servers
// that are lost: every worker and server computes it without asking. A lost server stays lost.
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

  // The server that serves these ranges now; kNobody: all that held them are lost.
  int owner(int home) const { return first_from(home, 0); }
  // The server that is to hold what `server` holds of these ranges; kNobody: none is left behind it.
  int next(int home, int server) const { return first_from(home, place(home, server) + 1); }
  // Whether `server` is in the chain of these ranges.
  bool holds(int home, int server) const { return place(home, server) <= replicas_; }
  // Copies besides the owner's.
  int copies(int home) const;
  // A home that nobody serves; kNobody: there is none.
  int orphan() const;

 private:
  int place(int home, int server) const { return (server - home + servers()) % servers(); }
  int first_from(int home, int place) const;

  int replicas_;
  std::vector<bool> lost_;
};

}  // namespace yoke::ps
