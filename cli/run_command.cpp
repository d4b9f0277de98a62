#include "cli/run_command.h"

#include <fmt/core.h>

#include <charconv>
#include <utility>

#include "cli/output.h"
#include "yoke/base/error.h"
#include "yoke/base/file.h"
#include "yoke/base/log.h"
#include "yoke/base/text.h"
#include "yoke/cluster/identity_sources.h"
#include "yoke/cluster/launch_env.h"
#include "yoke/cluster/launcher/child_environment.h"
#include "yoke/cluster/launcher/hosts.h"
#include "yoke/cluster/launcher/joining.h"
#include "yoke/cluster/whereabouts.h"
#include "yoke/net/address.h"

namespace yoke::cli {
namespace {

using cluster::LaunchOptions;

constexpr int kMaxLocal = 65536;
constexpr int kElasticPort = 29400;  // torchrun's defaults
constexpr int kStaticPort = 29500;

int whole(const char* flag, const std::string& text, int low, int high, int otherwise) {
  if (text.empty()) return otherwise;
  int value = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < low || value > high)
    throw ConfigError("{} {}: expected an integer in {}..{}.", flag, text, low, high);
  return value;
}

double seconds(const char* flag, const std::string& text, double otherwise) {
  if (text.empty()) return otherwise;
  double value = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !(value > 0 && value < 1e6))
    throw ConfigError("{} {}: expected a number of seconds above 0.", flag, text);
  return value;
}

int ranks_per_machine(const std::string& text) {
  int gpus = cluster::visible_gpus();
  if (text == "cpu" || (text == "auto" && gpus == 0)) return cluster::usable_cores();
  if (text == "gpu" && gpus == 0)
    throw ConfigError("--nproc-per-node gpu: no GPU is visible. Accepted: a number, auto, cpu or gpu.");
  if (text == "gpu" || text == "auto") return gpus;
  return whole("--nproc-per-node", text, 1, kMaxLocal, 1);
}

struct Machines {
  int fewest = 1, most = 1;
};

Machines machines(const std::string& text) {
  size_t colon = text.find(':');
  std::string low = text.substr(0, colon);
  std::string high = colon == std::string::npos ? low : text.substr(colon + 1);
  int fewest = whole("--nnodes", low, 1, kMaxLocal, 1);
  int most = whole("--nnodes", high, 1, kMaxLocal, 1);
  if (fewest > most) throw ConfigError("--nnodes {}: expected MIN:MAX with MIN at most MAX.", text);
  return {fewest, most};
}

// "3" for all local ranks, or "0:1,1:2".
std::map<int, int> streams(const char* flag, const std::string& text) {
  std::map<int, int> result;
  for (const std::string& item : split(text, ',')) {
    size_t colon = item.find(':');
    int rank = colon == std::string::npos ? -1 : whole(flag, item.substr(0, colon), 0, kMaxLocal, 0);
    result[rank] = whole(flag, colon == std::string::npos ? item : item.substr(colon + 1), 0, 3, 0);
  }
  return result;
}

std::vector<int> local_ranks(const std::string& text) {
  std::vector<int> result;
  for (const std::string& item : split(text, ','))
    result.push_back(whole("--local-ranks-filter", item, 0, kMaxLocal, 0));
  return result;
}

std::vector<cluster::Host> hosts_of(const RunFlags& flags) {
  if (!flags.hosts.empty() && !flags.hostfile.empty())
    throw ConfigError("-H and --hostfile: use one of them.");
  if (!flags.hosts.empty()) return cluster::parse_hosts(flags.hosts);
  if (!flags.hostfile.empty())
    return cluster::parse_hostfile(read_file(flags.hostfile, 1 << 20), flags.hostfile);
  return {};
}

void set_machines(const RunFlags& flags, const std::vector<cluster::Host>& hosts, LaunchOptions& options) {
  int each = ranks_per_machine(flags.nproc);
  options.node_sizes.clear();
  for (const cluster::Host& host : hosts)
    options.node_sizes.push_back(flags.nproc.empty() ? host.slots : each);
  if (hosts.empty()) options.node_sizes.assign(static_cast<size_t>(machines(flags.nnodes).most), each);
  int count = static_cast<int>(options.node_sizes.size());
  if (!hosts.empty() && !flags.nnodes.empty() && machines(flags.nnodes).most != count)
    throw ConfigError("--nnodes {}: the host list has {}.", flags.nnodes, count);
  if (count > 1 && flags.node_rank.empty()) {
    if (hosts.empty())
      throw ConfigError(
          "--nnodes {} needs --node-rank 0..{}, the number of this machine (under srun: --node-rank "
          "$SLURM_NODEID).",
          count, count - 1);
    options.node_rank = cluster::find_this_host(hosts);
  } else {
    options.node_rank = whole("--node-rank", flags.node_rank, 0, count - 1, 0);
  }
}

// The coordinator is elected through etcd: any machine may host it.
void set_etcd(const RunFlags& flags, LaunchOptions& options) {
  if (flags.endpoint.empty())
    throw ConfigError("--rdzv-backend etcd needs --rdzv-endpoint HOST:PORT,HOST:PORT, the members of etcd.");
  if (flags.id.empty() || flags.id == "none")
    throw ConfigError("--rdzv-backend etcd needs --rdzv-id ID: other jobs use the same etcd.");
  if (!flags.elastic && flags.nnodes.find(':') == std::string::npos)
    throw ConfigError(
        "--rdzv-backend etcd is for elastic jobs, which survive their coordinator. Add --elastic, or use "
        "--rdzv-backend tcp.");
  cluster::etcd_members(flags.endpoint);
  options.etcd = flags.endpoint;
  options.local_addr = flags.local_addr;
}

void set_endpoint(const RunFlags& flags, const std::vector<cluster::Host>& hosts, LaunchOptions& options) {
  bool several = options.node_sizes.size() > 1;
  options.master_addr = flags.master_addr;
  options.master_port = whole("--master-port", flags.master_port, 1, 65535, 0);
  if (flags.standalone && several)
    throw ConfigError("--standalone is for one machine, not for {}.", options.node_sizes.size());
  if (flags.backend == "etcd") {
    set_etcd(flags, options);
  } else if (!flags.endpoint.empty() && !flags.standalone) {
    net::Address address = net::parse_address(flags.endpoint, kElasticPort);
    if (several && (address.is_unix() || address.port == 0))
      throw ConfigError("--rdzv-endpoint {}: several machines need HOST:PORT with a port.", flags.endpoint);
    options.endpoint = address.text();
  } else if (several && !flags.master_addr.empty()) {
    int port = options.master_port == 0 ? kStaticPort : options.master_port;
    options.master_port = port;
    options.endpoint = cluster::host_and_port(flags.master_addr, port < 65535 ? port + 1 : port - 1);
  } else if (several && !hosts.empty()) {
    options.endpoint = cluster::host_and_port(hosts.front().name, kElasticPort);
  }
}

void set_conf(const RunFlags& flags, LaunchOptions& options) {
  for (const std::string& item : split(flags.conf, ',')) {
    size_t equals = item.find('=');
    if (equals == std::string::npos)
      throw ConfigError("--rdzv-conf {}: expected KEY=VALUE,KEY=VALUE.", flags.conf);
    std::string key = item.substr(0, equals);
    if (key == "join_timeout" || key == "timeout") {
      options.join_timeout = seconds("--rdzv-conf join_timeout", item.substr(equals + 1), 60);
    } else {
      log::warn("--rdzv-conf {}: is not supported and is ignored", item);
    }
  }
  options.join_timeout = seconds("--join-timeout", flags.join_timeout, options.join_timeout);
}

void check_backend(const std::string& backend) {
  for (const char* known : {"", "tcp", "c10d", "static", "etcd"})
    if (backend == known) return;
  throw ConfigError("--rdzv-backend {}: expected tcp, c10d, static or etcd.", backend);
}

// The other machines are started by hand, or by the user's own tools.
void print_commands(const RunFlags& flags, const std::vector<cluster::Host>& hosts) {
  std::vector<std::string> list;
  for (const cluster::Host& host : hosts) list.push_back(cluster::host_and_port(host.name, host.slots));
  for (size_t i = 1; i < hosts.size(); ++i) {
    std::string command = fmt::format("yoke run -H {} --node-rank {}", join(list, ","), i);
    for (const std::string& word : flags.typed) command += " " + cluster::shell_quoted(word);
    for (const std::string& word : flags.program) command += " " + cluster::shell_quoted(word);
    log::info("on {} start: {}", hosts[i].name, command);
  }
}

void warn_of_loopback(const std::string& endpoint, const std::vector<cluster::Host>& hosts) {
  if (hosts.size() < 2 || endpoint.empty()) return;
  const std::string coordinator = net::parse_address(endpoint).host;
  if (!cluster::is_loopback_only(coordinator)) return;
  // By name: resolving the addresses of all machines could take long.
  for (const cluster::Host& host : hosts)
    if (host.name != coordinator && host.name != "localhost" && host.name.rfind("127.", 0) != 0)
      return log::warn(
          "{} is a loopback address on this machine: {} cannot reach it. Next: --rdzv-endpoint ADDRESS:PORT "
          "with an address of this machine that the others can reach (`ip address` shows them)",
          coordinator, host.name);
}

void print_result(const cluster::LaunchResult& result, const LaunchOptions& options) {
  nlohmann::json document = {{"exit_code", result.exit_code},
                             {"world_size", options.world_size()},
                             {"restarts", result.restarts},
                             {"seconds", result.seconds}};
  if (const auto& failure = result.failure) {
    document["failure"] = {{"rank", failure->rank}, {"host", failure->host}, {"pid", failure->pid},
                           {"kind", failure->kind}, {"what", failure->what}, {"next", failure->next}};
    if (failure->step >= 0) document["failure"]["step"] = failure->step;
  }
  if (options.requeue) document["requeued"] = result.requeued;
  print_json(document);
}

}  // namespace

// A job that is joined has its machines already.
void check_join(const RunFlags& flags) {
  if (!flags.join) return;
  if (flags.endpoint.empty() || flags.standalone || flags.backend == "etcd")
    throw ConfigError(
        "--join needs --rdzv-endpoint HOST:PORT, where the coordinator of the running job listens.");
  if (!flags.nnodes.empty() || !flags.node_rank.empty() || !flags.hosts.empty() || !flags.hostfile.empty())
    throw ConfigError(
        "--join cannot be combined with --nnodes, --node-rank, -H or --hostfile: its ranks follow "
        "those of the running job.");
  if (flags.secret_file.empty() && !flags.insecure && !cluster::environment_variable("YOKE_SECRET_FILE"))
    throw ConfigError("--join needs --secret-file FILE, the key that the job was started with.");
}

cluster::LaunchOptions launch_options(const RunFlags& flags) {
  check_join(flags);
  LaunchOptions options;
  std::vector<cluster::Host> hosts = hosts_of(flags);
  check_backend(flags.backend);
  set_machines(flags, hosts, options);
  set_endpoint(flags, hosts, options);
  set_conf(flags, options);
  options.program = flags.program;
  options.job_id = flags.id == "none" ? "" : flags.id;
  if (options.job_id.find('/') != std::string::npos || options.job_id.size() > 128 ||
      options.job_id[0] == '.')
    throw ConfigError("--rdzv-id {}: expected at most 128 characters, without / and without a leading dot.",
                      flags.id);
  options.max_restarts = whole("--max-restarts", flags.max_restarts, 0, 1'000'000, 0);
  const Machines range = machines(flags.nnodes);
  if (flags.elastic || flags.join || range.fewest < range.most) {
    const bool ranged = range.fewest < range.most;
    options.elastic_min = ranged ? range.fewest * options.local_size() : 1;
    options.rank_restarts = std::exchange(options.max_restarts, 0);
  }
  options.monitor_interval = seconds("--monitor-interval", flags.monitor_interval, 0.1);
  options.secret_file = flags.secret_file;
  const bool several = options.node_sizes.size() > 1 || flags.join;
  if (options.secret_file.empty() && several && !flags.insecure)
    options.secret_file = cluster::environment_variable("YOKE_SECRET_FILE").value_or("");
  if (flags.insecure && flags.encrypt) throw ConfigError("--insecure and --encrypt: use one of them.");
  options.insecure = flags.insecure;
  options.encrypt = flags.encrypt;
  if (!flags.role.empty()) options.role = flags.role;
  options.tee = streams("--tee", flags.tee);
  options.redirects = streams("--redirects", flags.redirects);
  options.log_dir = flags.log_dir;
  options.shown_ranks = local_ranks(flags.local_ranks_filter);
  options.stdout_is_taken = flags.json;
  options.requeue = flags.requeue;
  return options;
}

int run_on_ranks(const CommandLine& line) {
  RunFlags flags = parse_run_flags(line.run.words, cluster::environment_variable);
  if (flags.help) {
    fmt::print("{}", run_help());
    return 0;
  }
  if (flags.quiet) log::set_level(log::Level::kWarning);
  if (flags.program.empty())
    throw ConfigError("PROGRAM is missing: yoke run [FLAGS] PROGRAM [ARGS…]. `yoke run --help` shows more.");
  LaunchOptions options = launch_options(flags);
  std::vector<cluster::Host> hosts = hosts_of(flags);
  if (options.node_rank == 0) {
    warn_of_loopback(options.endpoint, hosts);
    print_commands(flags, hosts);
  }
  if (flags.join) options = cluster::join_running_job(options);
  cluster::LaunchResult result = cluster::launch(options);
  if (flags.json) print_result(result, options);
  return result.exit_code;
}

}  // namespace yoke::cli
