// A client of etcd (v3) for the few requests that electing a coordinator needs, through its HTTP gateway.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "yoke/base/deadline.h"
#include "yoke/net/address.h"

namespace yoke::cluster {

// Thread-safe for one caller at a time. Every call asks one member after the other until one answers, and
// throws Error with kRendezvous, which names them all, if none does.
class Etcd {
 public:
  explicit Etcd(std::vector<net::Address> members);

  struct Value {
    std::string text;
    int64_t lease = 0;  // 0: none
  };
  std::optional<Value> get(const std::string& key, Deadline deadline);
  // Sets `key` unless it exists; returns what it is then.
  Value create(const std::string& key, const std::string& text, int64_t lease, Deadline deadline);
  void put(const std::string& key, const std::string& text, int64_t lease, Deadline deadline);
  // Keys with a lease are deleted once it has not been kept for `seconds`.
  int64_t grant(int seconds, Deadline deadline);
  bool keep(int64_t lease, Deadline deadline);  // false: it has expired
  void revoke(int64_t lease, Deadline deadline);

  const net::Address& member() const { return members_[current_]; }  // that answered last

 private:
  std::string ask(const std::string& path, const std::string& body, Deadline deadline);
  std::vector<net::Address> members_;
  size_t current_ = 0;
};

// The body of an HTTP response that is complete. Throws CommError: malformed, or a status other than 200.
std::string body_of(std::string_view response);
// The first value in the JSON of such a body; nothing: there is none. Throws CommError.
std::optional<Etcd::Value> read_range(const std::string& body);

}  // namespace yoke::cluster
