#include "cli/collab_arguments.h"

#include <CLI/CLI.hpp>

#include "cli/positive.h"

namespace yoke::cli {

void add_start_options(CLI::App& command, CollabArguments& collab) {
  command.add_option("FILE", collab.file, "configuration (TOML)")->required();
  command.add_option("--ticket-file", collab.ticket_file, "write the ticket here instead of logging it");
  command
      .add_option("--meeting", collab.meeting,
                  "address of the meeting point: HOST:PORT (0: any port), or etcd://HOST:PORT,…")
      ->capture_default_str();
  command.add_option("--announce", collab.announce, "HOST:PORT for the ticket, if peers use another address");
  command.add_option("--run-id", collab.run_id, "name of the run [model and a random number]");
  command.add_option("--init", collab.init, "initial weights (safetensors)");
  command.add_flag("--continue", collab.continues,
                   "resume hosting the run of --ticket-file, with the state in out.dir");
}

void add_join_options(CLI::App& command, CollabArguments& collab) {
  command.add_option("TICKET", collab.ticket, "the ticket, or a file that contains it")->required();
  command.add_option("FILE", collab.file, "configuration (TOML) [that of the run]");
  command.add_flag("--client-only", collab.client_only, "accept no connections (behind a firewall)");
  command.add_option("--steps", collab.steps, "leave after this many steps [at the end of the run]")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 40).description(""));
}

void add_watch_options(CLI::App& command, CollabArguments& collab) {
  command.add_option("TICKET", collab.ticket, "the ticket, or a file that contains it")->required();
  command.add_option("--html", collab.html, "write a page that refreshes itself");
  command.add_option("--interval", collab.interval, "seconds between updates")
      ->check(positive())
      ->capture_default_str();
  command.add_flag("--once", collab.once, "show the state once and exit");
}

void add_options(CLI::App& command, BenchAverageArguments& bench) {
  command.add_option("--peers", bench.peers, "peers, each a thread with its own connections")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  command.add_option("--bytes", bench.bytes, "size of the vector: 16MB")->capture_default_str();
  command.add_option("--link", bench.links, "bandwidth of each peer, for its share: 100mbit,20mbit [equal]");
  command.add_option("--iterations", bench.iterations, "measured rounds, after one warm-up round")
      ->check(CLI::Range(1, 10'000))
      ->capture_default_str();
}

}  // namespace yoke::cli
