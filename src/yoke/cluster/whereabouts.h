// Where the coordinator of a job is: at a fixed address, or wherever etcd says that it is now.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "yoke/base/deadline.h"
#include "yoke/net/address.h"

namespace yoke::cluster {

struct Whereabouts {
  // Asked again whenever the coordinator has to be reached anew. Throws Error while nobody knows.
  std::function<net::Address(Deadline)> find;
  bool moves = false;  // another process may take its place
  Whereabouts(net::Address fixed) : find([fixed = std::move(fixed)](Deadline) { return fixed; }) {}
  Whereabouts(std::function<net::Address(Deadline)> search) : find(std::move(search)), moves(true) {}
};

// "HOST:PORT", "unix:NAME", or "etcd:HOST:PORT,HOST:PORT": what the coordinator of `job_id` told these.
// Throws ConfigError.
Whereabouts whereabouts(const std::string& endpoint, const std::string& job_id);

inline constexpr const char* kEtcdPrefix = "etcd:";
inline constexpr int kEtcdPort = 2379;
// "HOST:PORT,HOST" without the prefix. Throws ConfigError.
std::vector<net::Address> etcd_members(const std::string& text);
// The key with the address of the coordinator of `job_id`, and that with its epoch and newest step.
std::string coordinator_key(const std::string& job_id);
std::string epoch_key(const std::string& job_id);

}  // namespace yoke::cluster
