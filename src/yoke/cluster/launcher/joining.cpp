#include "yoke/cluster/launcher/joining.h"

#include <fmt/core.h>

#include <chrono>
#include <thread>

#include "yoke/base/error.h"
#include "yoke/base/log.h"
#include "yoke/cluster/job_contact.h"
#include "yoke/cluster/launcher/hosting.h"

namespace yoke::cluster {

LaunchOptions join_running_job(LaunchOptions options) {
  const net::JobTicket ticket = make_ticket(options);
  const JobAddress job{options.endpoint, ticket.job_id, 0, net::to_string(ticket.protection)};
  const int count = options.local_size();
  Deadline deadline = Deadline::after(options.join_timeout);
  std::string why = "its own ranks have not all joined yet";
  for (; !deadline.passed(); std::this_thread::sleep_for(std::chrono::milliseconds(200))) try {
      const int first =
          JobContact(job, ticket.secret, deadline.sooner(2)).take_seats(count, deadline.sooner(2));
      if (first < 0) continue;
      log::info("joining the job at {} with {} rank{}: {} to {}", options.endpoint, count,
                count == 1 ? "" : "s", first, first + count - 1);
      options.node_sizes = {first, count};
      options.node_rank = 1;
      return options;
    } catch (const net::HandshakeRefused&) {
      throw;
    } catch (const Error& error) {
      why = error.what();
    }
  throw Error(
      ExitCode::kRendezvous,
      fmt::format("--join: no elastic job at {} took this machine in within {:.0f} s: {}. Next: check "
                  "--rdzv-endpoint, --rdzv-id and --secret-file, which are those of the job",
                  options.endpoint, options.join_timeout, why));
}

}  // namespace yoke::cluster
