// What a client has in flight. For the sources of Client only.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "yoke/base/deadline.h"
#include "yoke/ps/sparse/client.h"

namespace yoke::ps::sparse {

struct Client::Operation {
  Timestamp timestamp = 0;
  size_t left = 0;  // guarded by the client's mutex, like all below
  std::string error;
  std::vector<std::pair<int, TableReply>> replies;  // with their servers
  Done done;
  std::shared_ptr<const void> memory;  // that calls use
  int64_t version = 0;                 // to pull
  bool all_servers = false;            // likewise
};

struct Client::Call {
  explicit Call(double timeout) : moves(timeout) {}
  std::shared_ptr<Operation> operation;
  int table = 0;
  int server = 0;  // that the keys belong to
  int peer = 0;    // that was asked
  std::span<const Key> keys;
  std::span<const std::byte> values;  // to push, as they are sent
  std::span<std::byte> into;          // to pull
  bool pushes = false;
  bool in_full = false;  // the server does not have the list
  uint64_t hash = 0;
  PushTableHead push;
  KeyRange range{0, 0};           // of a round; empty: none
  int64_t time = 0;               // likewise
  int64_t version = 0;            // to pull
  std::vector<std::byte> fixed;   // values as fixed point
  std::vector<std::byte> packed;  // and compressed
  size_t unpacked = 0;            // bytes before that
  std::vector<std::byte> payload;
  Moves moves;
  Deadline deadline = Deadline::after(0);
};

}  // namespace yoke::ps::sparse
