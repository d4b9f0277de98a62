#include "cli/bench_average_command.h"

#include <fmt/core.h>

#include <memory>
#include <thread>

#include "cli/output.h"
#include "yoke/base/clock.h"
#include "yoke/base/error.h"
#include "yoke/base/text.h"
#include "yoke/base/units.h"
#include "yoke/collab/balance.h"
#include "yoke/collab/group.h"
#include "yoke/collab/ticket.h"
#include "yoke/metrics/quantiles.h"

namespace yoke::cli {
namespace {

std::vector<collab::Bandwidth> links_of(const BenchAverageArguments& arguments) {
  std::vector<collab::Bandwidth> links;
  for (const std::string& text : split(arguments.links, ',')) {
    const std::optional<double> rate = parse_rate(text);
    if (!rate) throw ConfigError("--link {}: expected rates such as 100mbit or 12.5MB/s.", text);
    links.push_back(*rate);
  }
  if (links.empty()) links.resize(static_cast<size_t>(arguments.peers));
  if (static_cast<int64_t>(links.size()) != arguments.peers)
    throw ConfigError("--link has {} rates for --peers {}: give one for each.", links.size(),
                      arguments.peers);
  return links;
}

struct Group {
  Group(const std::vector<int64_t>& parts) {
    collab::Ticket ticket;
    ticket.run_id = "bench";
    job = collab::job_ticket(ticket);
    for (int64_t part : parts) {
      acceptors.push_back(std::make_unique<net::Acceptor>(net::Address{.host = "127.0.0.1"}, job));
      plan.members.push_back({.peer = static_cast<int>(plan.members.size()),
                              .address = acceptors.back()->address().text(),
                              .begin = plan.elements,
                              .count = part});
      plan.elements += part;
    }
    values.assign(parts.size(), std::vector<float>(static_cast<size_t>(plan.elements), 1.0f));
    links.resize(parts.size());
    memory.resize(parts.size());
  }

  // Seconds until all peers have the average.
  double average(uint64_t round) {
    Stopwatch watch;
    std::vector<std::jthread> peers;
    std::vector<collab::GroupResult> results(values.size());
    for (size_t self = 0; self < values.size(); ++self)
      peers.emplace_back([&, self] {
        collab::GroupPlan own = plan;
        own.self = self;
        for (size_t i = 0; i < own.members.size(); ++i) {
          own.members[i].send_token = (round << 16) | (self << 8) | i;
          own.members[i].receive_token = (round << 16) | (i << 8) | self;
        }
        results[self] = collab::average_in_group(own, values[self], acceptors[self].get(), job,
                                                 {.links = &links[self], .memory = &memory[self]});
      });
    peers.clear();
    for (const collab::GroupResult& result : results)
      if (!result.complete || !result.senders.empty())
        throw CommError("bench average: a peer of this process was lost: {}",
                        result.complete ? result.senders[0].why : result.reducers[0].why);
    return watch.seconds();
  }

  net::JobTicket job;
  collab::GroupPlan plan;
  std::vector<std::unique_ptr<net::Acceptor>> acceptors;
  std::vector<std::vector<float>> values;
  // Kept from round to round, as peers do.
  std::vector<collab::KeptLinks> links;
  std::vector<collab::GroupMemory> memory;
};

}  // namespace

int bench_average(const CommandLine& line) {
  const BenchAverageArguments& arguments = line.bench_average;
  const int64_t bytes = parse_bytes(arguments.bytes).value_or(0);
  if (bytes < 4 || bytes > int64_t{1} << 36)
    throw ConfigError("--bytes {}: expected a size from 4 to 64G, such as 16MB.", arguments.bytes);
  std::vector<double> shares = collab::balance_load(links_of(arguments)).shares;
  Group group(collab::integer_parts(bytes / 4, shares));
  group.average(0);
  std::vector<double> seconds;
  for (int64_t i = 0; i < arguments.iterations; ++i)
    seconds.push_back(group.average(static_cast<uint64_t>(i) + 1));
  const double median = metrics::quantile(seconds, 0.5), p95 = metrics::quantile(seconds, 0.95);
  if (line.json)
    print_json({{"peers", arguments.peers},
                {"bytes", bytes},
                {"seconds", {{"median", median}, {"p95", p95}}},
                {"shares", shares}});
  else
    fmt::print("{} over {} peers: {} (p95 {})\n", format_bytes(static_cast<double>(bytes)), arguments.peers,
               format_duration(median), format_duration(p95));
  return 0;
}

}  // namespace yoke::cli
