#include "yoke/cluster/launcher/hosting.h"

#include <fmt/core.h>
#include <unistd.h>

#include <array>

#include "yoke/base/error.h"
#include "yoke/base/log.h"
#include "yoke/cluster/identity_sources.h"

namespace yoke::cluster {
namespace {

class FixedHosting : public Hosting {
 public:
  explicit FixedHosting(std::shared_ptr<Coordinator> coordinator) : coordinator_(std::move(coordinator)) {}
  std::shared_ptr<Coordinator> coordinator() const override { return coordinator_; }

 private:
  std::shared_ptr<Coordinator> coordinator_;
};

}  // namespace

std::string random_name() {
  std::array<std::byte, 8> bytes{};
  net::fill_random(bytes);
  std::string text;
  for (std::byte byte : bytes) text += fmt::format("{:02x}", static_cast<int>(byte));
  return text;
}

net::JobTicket make_ticket(const LaunchOptions& options) {
  net::JobTicket ticket;
  ticket.job_id = !options.job_id.empty()     ? options.job_id
                  : !options.endpoint.empty() ? "yoke-" + short_hash(options.endpoint)
                                              : "yoke-" + random_name();
  ticket.secret =
      options.secret_file.empty() ? net::Secret::random() : net::Secret::from_file(options.secret_file);
  if (options.encrypt) ticket.protection = net::Protection::kEncrypted;
  if (options.insecure) {
    ticket.protection = net::Protection::kNone;
    log::warn("--insecure: connections are neither authenticated nor protected");
  }
  return ticket;
}

CoordinatorOptions coordinator_options(const LaunchOptions& options) {
  CoordinatorOptions coordinator;
  coordinator.world_size = options.world_size();
  coordinator.join_timeout = options.join_timeout;
  coordinator.expendable = options.expendable;
  coordinator.late_ranks = options.late_ranks;
  coordinator.elastic_min = options.elastic_min;
  return coordinator;
}

std::unique_ptr<Hosting> host_on_first_machine(const LaunchOptions& options, JobPlace& place) {
  if (options.node_rank != 0) return std::make_unique<FixedHosting>(nullptr);
  CoordinatorOptions coordinator = coordinator_options(options);
  if (options.endpoint.empty())
    coordinator.address.name = fmt::format("yoke-{}-{}", ::getuid(), random_name());
  else
    coordinator.address = net::parse_address(options.endpoint);
  auto result = std::make_shared<Coordinator>(coordinator, place.ticket);
  // If any free port was requested, only we know which one it is.
  if (options.node_sizes.size() == 1) place.endpoint = result->address().text();
  return std::make_unique<FixedHosting>(std::move(result));
}

}  // namespace yoke::cluster
