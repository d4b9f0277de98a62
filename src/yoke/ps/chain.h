// The log of one home's changes on a server, as a link of the chain of servers that hold its ranges.
//
// The server that serves the ranges appends entries; each server applies an entry, then passes it on to the
// next. The last one acknowledges, and the acknowledgement travels back: an entry is safe once all that are
// alive have it. A server further down has a prefix of what the servers before it have, so any of them can
// take over. Entries that are not safe are kept, and sent again if the next server is lost; they are numbered
// without gaps, so a server recognises those that it has. Not thread-safe, never blocks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "yoke/ps/succession.h"

namespace yoke::ps {

class Chain {
 public:
  using Bytes = std::shared_ptr<const std::vector<std::byte>>;
  using Task = std::function<void()>;
  // Sends an entry to a server; calls `acknowledged` once, or never if that server is lost.
  using Send = std::function<void(int server, int64_t number, const Bytes& entry, Task acknowledged)>;

  // `next`: server that entries are passed on to; kNobody: none.
  Chain(Send send, int next) : send_(std::move(send)), next_(next) {}

  // Whether entries are sent to or kept for another server: otherwise their contents do not matter.
  bool passes_on() const;
  int64_t last() const { return last_; }  // number of the last entry here; 0: none
  int64_t unsafe() const { return static_cast<int64_t>(open_.size()); }  // entries
  bool is_safe(int64_t number) const { return open_.empty() || number < open_.front().number; }
  // Adds the next entry and passes it on. Returns its number.
  int64_t append(std::vector<std::byte> entry);
  // Calls `task` once the entry is safe; immediately if it is.
  void when_safe(int64_t number, Task task);
  int next() const { return next_; }
  // The next server has changed: it is sent all that is not safe. kNobody: all of it is safe.
  void set_next(int next);

  // A server that does not hold the ranges yet gets them (server_copies.cpp):
  // It is not known what `next` has: entries are kept until set_next() or fill().
  void hold_for(int next);
  // `server` gets a copy range by range. Entries are sent to it as well, but are safe without it.
  void fill(int server);
  bool is_filling() const { return filling_ != Succession::kNobody; }
  // It has been sent everything: from now on it is the next server.
  void filled();
  // This server gets a copy of what has happened up to this entry.
  void start_after(int64_t number);

 private:
  struct Open {
    int64_t number;
    Bytes entry;
    std::vector<Task> tasks{};
    bool acknowledged = false;
  };
  void pass_on(const Open& open);
  void acknowledged(int64_t number);
  void settle();

  Send send_;
  int next_;
  int filling_ = Succession::kNobody;
  bool held_ = false;  // entries wait for set_next() or fill()
  int64_t last_ = 0;
  std::deque<Open> open_;  // entries that are not safe, oldest first
};

}  // namespace yoke::ps
