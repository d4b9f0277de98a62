#include "cli/run_flags.h"

#include <fmt/core.h>

#include <algorithm>

#include "yoke/base/error.h"
#include "yoke/base/text.h"

namespace yoke::cli {
namespace {

struct Flag {
  std::vector<const char*> names;  // the first gives the name of its PET_ variable
  std::string RunFlags::*text = nullptr;
  bool RunFlags::*toggle = nullptr;
};

// A line of the help: flags that belong together.
struct Row {
  const char* shown;
  const char* help;
  std::vector<Flag> flags;
};

Flag value(std::vector<const char*> names, std::string RunFlags::*text) {
  return {std::move(names), text, nullptr};
}
Flag toggle(std::vector<const char*> names, bool RunFlags::*flag) {
  return {std::move(names), nullptr, flag};
}

const std::vector<Row>& rows() {
  using F = RunFlags;
  static const std::vector<Row> all = {
      {"--nproc-per-node N",
       "ranks on this machine: a number, auto, cpu, gpu; also --nproc, -np [1]",
       {value({"--nproc-per-node", "--nproc", "-np"}, &F::nproc)}},
      {"--nnodes N, --node-rank R",
       "number of machines, and the number of this one [1, 0]",
       {value({"--nnodes"}, &F::nnodes), value({"--node-rank"}, &F::node_rank)}},
      {"-H a:4,b:4, --hostfile FILE",
       "hosts with slots; prints the command for the other machines",
       {value({"-H", "--hosts", "--host"}, &F::hosts), value({"--hostfile"}, &F::hostfile)}},
      {"--rdzv-endpoint HOST:PORT",
       "rendezvous address on machine 0 [port 29400]; not needed on one machine",
       {value({"--rdzv-endpoint"}, &F::endpoint)}},
      {"--rdzv-id ID, --local-addr A",
       "job id, the same on all machines; address of this one (etcd) [found]",
       {value({"--rdzv-id"}, &F::id), value({"--local-addr"}, &F::local_addr)}},
      {"--master-addr A, --master-port P",
       "torchrun's static form of the same; the rendezvous uses port P + 1",
       {value({"--master-addr"}, &F::master_addr), value({"--master-port"}, &F::master_port)}},
      {"--secret-file FILE",
       "key for connections between machines (mode 0600)",
       {value({"--secret-file"}, &F::secret_file)}},
      {"--encrypt, --insecure",
       "encrypt all connections; disable authentication",
       {toggle({"--encrypt"}, &F::encrypt), toggle({"--insecure"}, &F::insecure)}},
      {"--join-timeout S",
       "seconds to wait for all ranks [60]",
       {value({"--join-timeout"}, &F::join_timeout)}},
      {"--elastic, --nnodes MIN:MAX",
       "continue without ranks that fail, while MIN machines (or one rank) are left",
       {toggle({"--elastic"}, &F::elastic)}},
      {"--join",
       "add these ranks to the elastic job that runs at --rdzv-endpoint",
       {toggle({"--join"}, &F::join)}},
      {"--max-restarts N",
       "restart all ranks, or a lost one (--elastic), at most N times [0]",
       {value({"--max-restarts"}, &F::max_restarts)}},
      {"--requeue",
       "under Slurm: requeue the job when it stops on SIGTERM or SIGUSR1",
       {toggle({"--requeue"}, &F::requeue)}},
      {"-t, --tee S; -r, --redirects S",
       "write output to files too, or only there: 1 out, 2 err, 3 both, 0:1,1:3",
       {value({"--tee", "-t"}, &F::tee), value({"--redirects", "-r"}, &F::redirects)}},
      {"--log-dir DIR",
       "folder for these files: DIR/ID/attempt_0/RANK/stdout.log",
       {value({"--log-dir"}, &F::log_dir)}},
      {"--local-ranks-filter 0,1",
       "show the output of these local ranks only",
       {value({"--local-ranks-filter"}, &F::local_ranks_filter)}},
      {"--standalone, --rdzv-backend B",
       "one machine; tcp (also c10d, static), or etcd: survives its coordinator",
       {toggle({"--standalone"}, &F::standalone), value({"--rdzv-backend"}, &F::backend)}},
      {"--rdzv-conf, --monitor-interval",
       "torchrun: join_timeout=S; polling interval in seconds [0.1]",
       {value({"--rdzv-conf"}, &F::conf), value({"--monitor-interval"}, &F::monitor_interval)}},
      {"--role R, --no-python",
       "torchrun: ROLE_NAME of the ranks; accepted and ignored",
       {value({"--role"}, &F::role), toggle({"--no-python"}, &F::no_python)}},
      {"--json, -q/--quiet, -h/--help",
       "result as JSON, ranks print to stderr; fewer messages; this help",
       {toggle({"--json"}, &F::json), toggle({"--quiet", "-q"}, &F::quiet),
        toggle({"--help", "-h"}, &F::help)}},
  };
  return all;
}

// torchrun accepts both --nproc_per_node and --nproc-per-node.
std::string with_dashes(std::string name) {
  if (name.rfind("--", 0) == 0) std::replace(name.begin(), name.end(), '_', '-');
  return name;
}

const Flag* find_flag(const std::string& name) {
  for (const Row& row : rows()) {
    for (const Flag& flag : row.flags) {
      if (std::find(flag.names.begin(), flag.names.end(), name) != flag.names.end()) return &flag;
    }
  }
  return nullptr;
}

[[noreturn]] void unknown(const std::string& name) {
  std::vector<std::string> names;
  for (const Row& row : rows()) {
    for (const Flag& flag : row.flags) names.insert(names.end(), flag.names.begin(), flag.names.end());
  }
  std::string near = nearest_name(name, names);
  throw ConfigError(
      "{}: `yoke run` has no such flag.{} `yoke run --help` lists them; flags of PROGRAM come after it.",
      name, near.empty() ? "" : " Did you mean " + near + "?");
}

void take_variables(RunFlags& flags,
                    const std::function<std::optional<std::string>(const std::string&)>& variable) {
  for (const Row& row : rows()) {
    for (const Flag& flag : row.flags) {
      std::string name = std::string("PET") + (flag.names.front() + 1);
      std::transform(name.begin(), name.end(), name.begin(),
                     [](unsigned char c) { return c == '-' ? '_' : std::toupper(c); });
      std::optional<std::string> set = name.rfind("PET_", 0) == 0 ? variable(name) : std::nullopt;
      if (set && flag.text != nullptr) flags.*flag.text = *set;
      if (set && flag.toggle != nullptr) flags.*flag.toggle = *set != "0";
    }
  }
}

// Parses the flag at `i` and advances past it and its value.
const Flag& take_flag(const std::vector<std::string>& words, size_t& i, RunFlags& flags) {
  const std::string& word = words[i++];
  size_t equals = word.rfind("--", 0) == 0 ? word.find('=') : std::string::npos;
  std::string name = with_dashes(word.substr(0, equals));
  const Flag* flag = find_flag(name);
  if (flag == nullptr) unknown(word.substr(0, equals));
  if (flag->toggle != nullptr) {
    if (equals != std::string::npos) throw ConfigError("{} takes no value.", name);
    flags.*flag->toggle = true;
  } else if (equals != std::string::npos) {
    flags.*flag->text = word.substr(equals + 1);
  } else if (i < words.size()) {
    flags.*flag->text = words[i++];
  } else {
    throw ConfigError("{} needs a value. `yoke run --help` shows its form.", name);
  }
  return *flag;
}

}  // namespace

RunFlags parse_run_flags(const std::vector<std::string>& words,
                         const std::function<std::optional<std::string>(const std::string&)>& variable) {
  RunFlags flags;
  take_variables(flags, variable);
  size_t i = 0;
  while (i < words.size() && words[i].size() > 1 && words[i][0] == '-') {
    if (words[i] == "--") {
      ++i;
      break;
    }
    size_t first = i;
    const Flag& flag = take_flag(words, i, flags);
    bool about_hosts = flag.text == &RunFlags::node_rank || flag.text == &RunFlags::hosts ||
                       flag.text == &RunFlags::hostfile;
    for (; first < i; ++first) {
      if (!about_hosts) flags.typed.push_back(words[first]);
    }
  }
  flags.program.assign(words.begin() + static_cast<std::ptrdiff_t>(i), words.end());
  return flags;
}

std::string run_help() {
  std::string out =
      "Launches PROGRAM on several ranks. Flags are torchrun's, with - or _.\n"
      "Usage: yoke run [FLAGS] PROGRAM [ARGS...]\n\n";
  for (const Row& row : rows()) out += fmt::format("  {:<33}{}\n", row.shown, row.help);
  return out + "\nExample: yoke run --nproc 4 ./my_program --its-flag 7\n";
}

}  // namespace yoke::cli
