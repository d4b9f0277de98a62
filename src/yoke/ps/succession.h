// Which server serves which ranges: where servers are lost (ps.replicas), join, or hand ranges over.
//
// The ranges of the parameters are divided into homes, as many as there are places for servers. The servers
// that are there at the start share them. Each home has an order of all servers; the first `replicas` + 1 of
// them that are alive hold the ranges, the very first serves them. Without replicas only the first server of
// the order serves. So who serves is a function of the servers that are lost or have joined, and of the homes
// that have moved: whoever knows these knows the map. A lost server stays lost. A server that enters a chain
// gets its copy while training continues; if it would have to serve before, the ranges are lost, which it
// knows by itself.
//
// A home moves to a server that has got a copy at the end of its chain (server_move.cpp). Moves of a home are
// numbered, so that late news change nothing.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace yoke::ps {

class Succession {
 public:
  static constexpr int kNobody = -1;

  // `servers`: places, and homes. `at_start`: servers that are there; 0: all. `machines`: of these, the same
  // for all who keep the map; empty: one machine. The first copy is on another machine than its home, if
  // there is one and none has more than half of the servers. Throws ConfigError unless 0 <= replicas <
  // at_start.
  Succession(int servers, int replicas, int at_start = 0, const std::vector<std::string>& machines = {});

  int servers() const { return static_cast<int>(lost_.size()); }
  int replicas() const { return replicas_; }
  // Lost, or not there yet.
  bool is_lost(int server) const { return lost_[static_cast<size_t>(server)]; }
  bool is_absent(int server) const { return absent_[static_cast<size_t>(server)]; }
  int64_t lost() const;  // without those that are not there yet
  int living() const;
  // False: it was lost already.
  bool lose(int server);
  // An absent server has joined. False: it had joined before.
  bool add(int server);

  // The server that serves these ranges now; kNobody: none is left.
  int owner(int home) const;
  // The server that is to hold what `server` holds of these ranges; kNobody: `server` is the last of the
  // chain.
  int next(int home, int server) const;
  // Whether `server` is in the chain of these ranges, or was before it was lost.
  bool holds(int home, int server) const;
  // Whether it was in the chain before any server was lost, and has not handed the ranges over.
  bool held_from_start(int home, int server) const {
    return of(home).from_start[static_cast<size_t>(server)];
  }
  // Copies besides the owner's, once they are made.
  int copies(int home) const;
  // A home that nobody serves; kNobody: there is none.
  int orphan() const;
  // The lost servers that have served these ranges, or would have.
  std::vector<int> lost_before_owner(int home) const;

  // `server` gets a copy at the end of the chain, to serve later; kNobody: nobody.
  void prepare(int home, int server) { of(home).target = server; }
  int target(int home) const;
  // `to` serves in place of `from`. False: this move or a later one is known.
  struct Move {
    int64_t home = 0;
    int64_t from = 0;
    int64_t to = 0;
    int64_t number = 0;  // of the moves of this home, from 1
  };
  bool apply(const Move& move);
  // The last move of this home; number 0: it has not moved.
  const Move& last_move(int home) const { return of(home).last; }
  // Homes that this server serves.
  std::vector<int> homes_of(int server) const;

 private:
  struct Home {
    std::vector<int> order;
    std::vector<bool> from_start;  // by server
    int target = kNobody;
    Move last;
  };
  const Home& of(int home) const { return homes_[static_cast<size_t>(home)]; }
  Home& of(int home) { return homes_[static_cast<size_t>(home)]; }
  // Servers that are alive, before `server` in the order of this home.
  int living_before(int home, int server) const;

  int replicas_;
  std::vector<bool> lost_;
  std::vector<bool> absent_;
  std::vector<Home> homes_;
};

}  // namespace yoke::ps
