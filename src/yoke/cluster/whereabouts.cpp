#include "yoke/cluster/whereabouts.h"

#include <chrono>
#include <memory>
#include <thread>

#include "yoke/base/error.h"
#include "yoke/base/text.h"
#include "yoke/cluster/etcd.h"

namespace yoke::cluster {
namespace {

constexpr auto kLookEvery = std::chrono::milliseconds(50);

}  // namespace

std::vector<net::Address> etcd_members(const std::string& text) {
  std::vector<net::Address> members;
  for (const std::string& one : split(text, ',')) {
    if (one.find("://") != std::string::npos)
      throw ConfigError("etcd at {}: expected HOST:PORT without a scheme; it is reached by http.", one);
    members.push_back(net::parse_address(one, kEtcdPort));
    if (members.back().is_unix() || members.back().port == 0)
      throw ConfigError("etcd at {}: expected HOST:PORT.", one);
  }
  if (members.empty()) throw ConfigError("etcd: expected HOST:PORT,HOST:PORT.");
  return members;
}

std::string coordinator_key(const std::string& job_id) {
  return fmt::format("/yoke/{}/coordinator", job_id);
}

std::string epoch_key(const std::string& job_id) {
  return fmt::format("/yoke/{}/epoch", job_id);
}

Whereabouts whereabouts(const std::string& endpoint, const std::string& job_id) {
  if (!endpoint.starts_with(kEtcdPrefix)) return net::parse_address(endpoint);
  auto etcd = std::make_shared<Etcd>(etcd_members(endpoint.substr(std::string(kEtcdPrefix).size())));
  return std::function<net::Address(Deadline)>([etcd, job_id](Deadline deadline) {
    for (;;) {
      if (std::optional<Etcd::Value> value = etcd->get(coordinator_key(job_id), deadline))
        return net::parse_address(value->text);
      if (deadline.passed())
        throw Error(ExitCode::kRendezvous,
                    fmt::format("no launcher of job '{}' hosts its coordinator (key {} "
                                "in etcd). Next: start one with the same --rdzv-id",
                                job_id, coordinator_key(job_id)));
      std::this_thread::sleep_for(kLookEvery);
    }
  });
}

}  // namespace yoke::cluster
