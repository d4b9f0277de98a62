// yoke collab start and join: one peer of a collaborative run; `start` also hosts the meeting point.
#include <fmt/core.h>

#include <filesystem>

#include "cli/collab_run.h"
#include "cli/output.h"
#include "cli/torch/collab_peer.h"
#include "cli/torch/commands.h"
#include "yoke/base/error.h"
#include "yoke/base/file.h"
#include "yoke/base/log.h"
#include "yoke/base/units.h"
#include "yoke/cluster/launch_env.h"
#include "yoke/cluster/whereabouts.h"
#include "yoke/collab/etcd_meeting.h"
#include "yoke/collab/meeting_server.h"
#include "yoke/engine/parameter_hash.h"
#include "yoke/engine/stop_signal.h"
#include "yoke/metrics/jsonl.h"

namespace yoke::cli {
namespace {

namespace fs = std::filesystem;

fs::path state_file(const CollabPeer& peer) {
  return fs::path(peer.config().out.dir) / "state.safetensors";
}

// metrics.jsonl, weights, state and summary.json in the peer's folder.
class PeerRecords {
 public:
  explicit PeerRecords(const CollabPeer& peer)
      : peer_(peer), folder_(peer.config().out.dir), lines_(folder_ / "metrics.jsonl") {
    fs::create_directories(folder_);
    write_file_atomically(folder_ / "config.toml", peer.configuration().schema.to_toml());
    fs::remove(folder_ / "metrics.jsonl");
    lines_.start({});
  }

  void step(const collab::PeerOptions::StepNews& news) {
    loss_ = news.loss;
    const int64_t every = std::max<int64_t>(1, peer_.config().out.log_every);
    const int64_t save = peer_.config().checkpoint.every_steps;
    if (news.epoch % every == 0 || news.epoch == peer_.steps()) {
      metrics::Record record;
      record.step = news.epoch;
      record.time = watch_.seconds();
      record.loss = news.loss;
      record.lr = peer_.learning_rate(news.epoch - 1);
      record.samples = news.epoch * peer_.config().collab.target_batch;
      record.epoch = static_cast<double>(record.samples) / static_cast<double>(peer_.samples());
      record.samples_per_s =
          static_cast<double>(record.samples - logged_samples_) / (record.time - logged_time_);
      record.comm_seconds = news.average_seconds;
      lines_.write(record);
      logged_samples_ = record.samples;
      logged_time_ = record.time;
      log::info("step {}: loss {:.4f}, {} of {} samples here, averaged over {} peers in {}", news.epoch,
                news.loss, news.samples, peer_.config().collab.target_batch, news.members,
                format_duration(news.average_seconds));
    }
    if (save > 0 && news.epoch % save == 0) this->save(news.epoch);
  }

  void save(int64_t epoch) const {
    checkpoint::save_tensors(folder_ / "weights.safetensors", peer_.weights());
    peer_.save_state(state_file(peer_), epoch);
  }

  nlohmann::json finish(const collab::PeerSummary& summary) {
    if (summary.epoch >= 0) save(summary.epoch);
    nlohmann::json result = {{"steps", summary.epoch},
                             {"final_loss", loss_},
                             {"peer", summary.peer},
                             {"steps_taken_part", summary.steps},
                             {"samples", summary.samples},
                             {"samples_per_s", static_cast<double>(summary.samples) / watch_.seconds()},
                             {"downloads", summary.downloads},
                             {"rounds_repeated", summary.rounds_repeated},
                             {"reconnects", summary.reconnects},
                             {"bytes_sent", summary.bytes_sent},
                             {"over", summary.over},
                             {"parameters", peer_.worker().parameters},
                             {"parameter_hash", engine::parameter_hash(*peer_.worker().model.module)},
                             {"weights", (folder_ / "weights.safetensors").string()},
                             {"seconds", watch_.seconds()}};
    write_file_atomically(folder_ / "summary.json", result.dump(2) + "\n");
    return result;
  }

 private:
  const CollabPeer& peer_;
  fs::path folder_;
  metrics::JsonLines lines_;
  Stopwatch watch_;
  double loss_ = 0;
  int64_t logged_samples_ = 0;
  double logged_time_ = 0;
};

int run_as_peer(const CommandLine& line, CollabPeer& peer, const collab::Ticket& ticket,
                collab::PeerOptions options, collab::EtcdMeeting* meeting = nullptr) {
  PeerRecords records(peer);
  engine::StopSignals signals;
  options.on_step = [&](const collab::PeerOptions::StepNews& news) { records.step(news); };
  if (meeting != nullptr) options.meeting = [=](Deadline deadline) { return meeting->find(deadline); };
  collab::PeerSummary summary = collab::run_peer(ticket, peer.identity(), peer.trainer(), options);
  nlohmann::json result = records.finish(summary);
  if (line.json)
    print_json(result);
  else
    fmt::print("peer {}: {} of {} steps, {} samples, loss {:.4f}; weights: {}\n", summary.peer, summary.steps,
               summary.epoch, summary.samples, result.at("final_loss").get<double>(),
               result.at("weights").get<std::string>());
  const int signal = engine::requested_stop();
  if (meeting != nullptr && summary.over)
    meeting->wait_until_empty(Deadline::after(peer.config().collab.timeout));
  return signal != 0 && !summary.over ? 128 + signal : 0;
}

collab::MeetingOptions meeting_options(CollabPeer& peer) {
  const collab::CollabOptions& collab = peer.config().collab;
  collab::MeetingOptions options;
  options.run = peer.run();
  options.steps = peer.steps();
  options.elements = peer.trainer().elements();
  options.target_batch = collab.target_batch;
  options.robust = collab::parse_robust(collab.robust);
  options.suspects = static_cast<int>(collab.suspects);
  options.roles = collab::parse_role_policy(collab.roles);
  options.group_size = collab.group_size;
  options.min_peers = collab.min_peers;
  options.timeout = collab.timeout;
  options.quorum_timeout = collab.quorum_timeout;
  return options;
}

collab::Ticket announced(collab::Ticket ticket, const net::Address& bound, const std::string& announce) {
  ticket.meeting = bound;
  if (!announce.empty()) ticket.meeting = net::parse_address(announce, bound.port);
  if (ticket.meeting.host == "0.0.0.0" || ticket.meeting.host == "::") ticket.meeting.host = net::host_name();
  return ticket;
}

constexpr const char* kEtcdScheme = "etcd://";

// Where peers listen, this process may host the meeting point too.
collab::EtcdHost host_of(CollabPeer& peer, bool starts_run) {
  return {{.host = net::parse_address(peer.config().collab.listen).host, .port = 0},
          meeting_options(peer),
          starts_run};
}

void announce(const CommandLine& line, const CollabPeer& peer, const collab::Ticket& ticket) {
  if (line.collab.ticket_file.empty())
    log::info("ticket: {}", to_text(ticket));
  else
    collab::write_ticket(line.collab.ticket_file, ticket);
  log::info("collab: run '{}' of {} steps, {} samples each", ticket.run_id, peer.steps(),
            peer.config().collab.target_batch);
}

// A run whose place is kept in etcd: it outlives this process.
int start_in_etcd(const CommandLine& line, CollabPeer& peer, collab::Ticket ticket) {
  if (!line.collab.announce.empty())
    throw ConfigError("--announce: with --meeting {} peers find the address in etcd. Remove it.",
                      line.collab.meeting);
  ticket.etcd = cluster::etcd_members(line.collab.meeting.substr(std::string(kEtcdScheme).size()));
  collab::EtcdMeeting meeting(ticket, host_of(peer, /*starts_run=*/true));
  meeting.find(Deadline::after(peer.config().collab.timeout));
  announce(line, peer, ticket);
  return run_as_peer(line, peer, ticket, peer.options(), &meeting);
}

// Takes part in the run whose meeting point this process is.
int host(const CommandLine& line, CollabPeer& peer, collab::MeetingServer& server, collab::Ticket ticket,
         const collab::PeerOptions& options) {
  ticket.meeting = server.address();
  const int code = run_as_peer(line, peer, ticket, options);
  server.wait_until_empty(Deadline::after(peer.config().collab.timeout));
  return code;
}

// The meeting point of a run that lost its own. Peers that still run return to it; without any, the run
// continues from the state that this peer saved.
int continue_run(const CommandLine& line, CollabPeer& peer, const fs::path& record) {
  if (line.collab.ticket_file.empty())
    throw ConfigError("--continue: --ticket-file is missing. Give the ticket of the run.");
  const collab::Ticket ticket = collab::read_ticket(line.collab.ticket_file);
  if (!ticket.etcd.empty())
    throw ConfigError("--continue: a run in etcd needs no process that started it. Use `yoke collab join`.");
  collab::MeetingOptions options = meeting_options(peer);
  options.returns = true;
  if (std::optional<collab::MeetingRecord> last = collab::read_record(record)) {
    if (last->run_id != ticket.run_id)
      throw ConfigError("{} is of run '{}', the ticket of run '{}'. Next: use the out.dir of that run.",
                        record.string(), last->run_id, ticket.run_id);
    options.known = {last->previous, last->newest};
  }
  collab::Ticket bound = ticket;
  if (line.collab.meeting != CollabArguments().meeting)
    bound.meeting = net::parse_address(line.collab.meeting);
  collab::PeerOptions own = peer.options();
  if (fs::exists(state_file(peer))) {
    own.first_epoch = peer.load_state(state_file(peer));
    log::info("collab: this peer has the state of step {}", own.first_epoch);
  }
  fs::create_directories(record.parent_path());
  collab::MeetingServer server(bound, options, record);
  log::info("collab: run '{}' meets at {} again", ticket.run_id, ticket.meeting.text());
  return host(line, peer, server, ticket, own);
}

}  // namespace

int run_collab_start(const CommandLine& line) {
  cluster::arm_faults(/*rank=*/0, /*attempt=*/0);
  Configuration configuration;
  configuration.load(line.collab.file, line.overrides);
  configuration.values.out.dir = run_folder(configuration.values);
  CollabPeer peer(configuration, line.collab.init);
  const fs::path record = fs::path(configuration.values.out.dir) / "meeting.json";
  if (line.collab.continues) return continue_run(line, peer, record);
  collab::Ticket ticket;
  ticket.run_id = line.collab.run_id;
  if (ticket.run_id.empty())
    ticket.run_id =
        fmt::format("{}-{}", peer.config().model.name, net::Secret::random().to_text().substr(0, 6));
  if (line.collab.meeting.starts_with(kEtcdScheme)) return start_in_etcd(line, peer, ticket);
  ticket.meeting = net::parse_address(line.collab.meeting);
  fs::create_directories(record.parent_path());
  for (const fs::path& of_another_run : {record, state_file(peer)}) fs::remove(of_another_run);
  collab::MeetingServer server(ticket, meeting_options(peer), record);
  ticket = announced(ticket, server.address(), line.collab.announce);
  announce(line, peer, ticket);
  log::info("collab: run '{}' meets at {}", ticket.run_id, ticket.meeting.text());
  return host(line, peer, server, ticket, peer.options());
}

int run_collab_join(const CommandLine& line) {
  cluster::arm_faults(/*rank=*/0, /*attempt=*/0);
  const collab::Ticket ticket = collab::read_ticket(line.collab.ticket);
  Configuration configuration;
  if (line.collab.file.empty()) {
    const double timeout = collab::CollabOptions().timeout;
    const nlohmann::json status =
        reach_meeting(ticket, Deadline::after(timeout))->call({{"type", "watch"}}, Deadline::after(timeout));
    configuration.schema.read_text(to_toml(status.at("run")), "the run's configuration");
  }
  configuration.load(line.collab.file, line.overrides);
  CollabPeer peer(configuration);
  if (configuration.values.out.dir.empty())  // several peers of one machine
    configuration.values.out.dir =
        fmt::format("runs/collab_{}_{}", ticket.run_id, collab::short_name(peer.identity().public_key()));
  collab::PeerOptions options = peer.options();
  options.client_only = line.collab.client_only;
  options.most_steps = line.collab.steps;
  if (ticket.etcd.empty()) return run_as_peer(line, peer, ticket, std::move(options));
  std::optional<collab::EtcdHost> host;
  if (!options.client_only) host = host_of(peer, /*starts_run=*/false);
  collab::EtcdMeeting meeting(ticket, std::move(host));
  return run_as_peer(line, peer, ticket, std::move(options), &meeting);
}

}  // namespace yoke::cli
