#include "yoke/cluster/launcher/joining.h"

#include <fmt/core.h>

#include <chrono>
#include <filesystem>
#include <thread>

#include "yoke/base/error.h"
#include "yoke/base/log.h"
#include "yoke/cluster/job_contact.h"
#include "yoke/cluster/launcher/hosting.h"
#include "yoke/net/address.h"

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

namespace {

constexpr int kMostRestarts = 4;  // whose generations are tried

bool names_folder(const JobQuery& query) {
  return std::filesystem::exists(query.where) || query.where.find(':') == std::string::npos;
}

}  // namespace

JobContact find_job(const JobQuery& query, Deadline deadline) {
  const bool keyed = !query.secret_file.empty() || query.insecure;
  if (names_folder(query)) {
    if (keyed || query.encrypt || !query.job_id.empty())
      throw ConfigError(
          "{}: --secret-file, --rdzv-id, --encrypt and --insecure are for HOST:PORT; a job on this machine "
          "is "
          "found by the folder of its run.",
          query.where);
    return JobContact::find(query.where, deadline);
  }
  if (!keyed)
    throw ConfigError(
        "{}: reaching a job by its address needs the key of the job: --secret-file FILE, as for `yoke run`.",
        query.where);
  LaunchOptions options;
  options.endpoint = net::parse_address(query.where).text();
  options.secret_file = query.secret_file;
  options.job_id = query.job_id;
  options.encrypt = query.encrypt;
  options.insecure = query.insecure;
  const net::JobTicket ticket = make_ticket(options);
  JobAddress job{query.where, ticket.job_id, 0, net::to_string(ticket.protection), true, query.secret_file};
  for (;; ++job.generation) try {
      return {job, ticket.secret, deadline};
    } catch (const net::HandshakeRefused&) {
      if (job.generation == kMostRestarts) throw;
    } catch (const CommError& error) {
      throw Error(ExitCode::kRendezvous,
                  fmt::format("no job answers at {}: {}. Next: check the address, which is that of "
                              "--rdzv-endpoint",
                              query.where, error.what()));
    }
}

}  // namespace yoke::cluster
