#include "yoke/cluster/identity_sources.h"

#include <fmt/core.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <array>
#include <fstream>
#include <numeric>
#include <string_view>

#include "yoke/base/error.h"

namespace yoke::cluster {
namespace {

// Reads one number into a claim and records its purpose.
void read(Variables& variables, Claim& claim, std::optional<int>& field, const std::string& name, int low,
          const std::string& why) {
  std::optional<int> value = variables.number(name, low, kMaxWorldSize, claim.problem);
  if (!value) return;
  field = value;
  claim.uses.push_back({name, "", true, why});
}

void read_rank_and_world(Variables& variables, Claim& claim, const char* rank, const char* world) {
  claim.rank_name = rank;
  claim.world_name = world;
  read(variables, claim, claim.rank, rank, 0, "rank");
  read(variables, claim, claim.world_size, world, 1, "world size");
}

void require_both(Claim& claim) {
  if (!claim.problem.empty() || claim.complete()) return;
  claim.problem = fmt::format("{} is set but {} is not: a rank needs both. Set it, or unset the other",
                              claim.rank ? claim.rank_name : claim.world_name,
                              claim.rank ? claim.world_name : claim.rank_name);
}

// Appends a variable's value to a key and records the variable as used.
std::string key_part(Variables& variables, Claim& claim, const char* name, const char* why) {
  std::optional<std::string> value = variables.text(name);
  if (!value) return "";
  claim.uses.push_back({name, "", true, why});
  return fmt::format("{}={};", name, *value);
}

void read_generation(Variables& variables, Claim& claim, const char* name) {
  std::optional<int> generation;
  read(variables, claim, generation, name, 0, "restart count");
  claim.generation = generation.value_or(0);
}

std::optional<Claim> read_yoke(Variables& variables) {
  if (!variables.text("YOKE_RANK")) return std::nullopt;
  Claim claim("yoke");
  read_rank_and_world(variables, claim, "YOKE_RANK", "YOKE_WORLD_SIZE");
  require_both(claim);
  read(variables, claim, claim.local_rank, "YOKE_LOCAL_RANK", 0, "local rank");
  read(variables, claim, claim.local_world_size, "YOKE_LOCAL_WORLD_SIZE", 1, "ranks on this machine");
  read(variables, claim, claim.node_rank, "YOKE_NODE_RANK", 0, "number of this machine");
  read(variables, claim, claim.nodes, "GROUP_WORLD_SIZE", 1, "number of machines");
  read_generation(variables, claim, "YOKE_GENERATION");
  claim.job_key = variables.text("YOKE_JOB_ID").value_or("");
  claim.uses.push_back({"YOKE_JOB_ID", "", true, "job id: set by yoke run, which hosts the coordinator"});
  claim.uses.push_back({"YOKE_JOB_KEY", "", true, "proves that this process belongs to the job"});
  variables.text("YOKE_JOB_KEY");
  return claim;
}

// torchrun's agent has its own store on MASTER_PORT, and programs that use other libraries may open theirs
// there: use the next port.
void read_master(Variables& variables, Claim& claim) {
  std::string problem;
  std::optional<std::string> host = variables.text("MASTER_ADDR");
  std::optional<int> port = variables.number("MASTER_PORT", 1, 65535, problem);
  if (!host || !port) {
    if (claim.endpoint_why.empty() && !problem.empty()) claim.endpoint_why = problem;
    return;
  }
  int own = *port < 65535 ? *port + 1 : *port - 1;
  claim.endpoint = host_and_port(*host, own);
  claim.endpoint_why =
      fmt::format("coordinator: port {}, next to MASTER_PORT, where torch's store may listen", own);
  claim.endpoint_names = {"MASTER_ADDR", "MASTER_PORT"};
}

std::optional<Claim> read_torchrun(Variables& variables) {
  if (!variables.text("RANK") && !variables.text("WORLD_SIZE")) return std::nullopt;
  Claim claim("torchrun");
  read_rank_and_world(variables, claim, "RANK", "WORLD_SIZE");
  require_both(claim);
  // With --virtual-local-rank every LOCAL_RANK is 0: it selects a device and is never a key.
  read(variables, claim, claim.local_rank, "LOCAL_RANK", 0, "local rank");
  read(variables, claim, claim.local_world_size, "LOCAL_WORLD_SIZE", 1, "ranks on this machine");
  read(variables, claim, claim.node_rank, "GROUP_RANK", 0, "number of this machine");
  read(variables, claim, claim.nodes, "GROUP_WORLD_SIZE", 1, "number of machines");
  read_generation(variables, claim, "TORCHELASTIC_RESTART_COUNT");
  claim.job_key = key_part(variables, claim, "TORCHELASTIC_RUN_ID", "identifies this job");
  read_master(variables, claim);
  claim.local_key =
      fmt::format("{}{};{}", claim.job_key, variables.text("MASTER_PORT").value_or(""), claim.generation);
  variables.text("TORCHELASTIC_USE_AGENT_STORE");
  variables.ignored("TORCHELASTIC_USE_AGENT_STORE", "MASTER_PORT itself is not used");
  return claim;
}

std::optional<Claim> read_open_mpi(Variables& variables) {
  if (!variables.text("OMPI_COMM_WORLD_RANK")) return std::nullopt;
  Claim claim("openmpi");
  read_rank_and_world(variables, claim, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE");
  require_both(claim);
  read(variables, claim, claim.local_rank, "OMPI_COMM_WORLD_LOCAL_RANK", 0, "local rank");
  read(variables, claim, claim.local_world_size, "OMPI_COMM_WORLD_LOCAL_SIZE", 1, "ranks on this machine");
  claim.job_key = key_part(variables, claim, "PMIX_NAMESPACE", "identifies this job");
  if (claim.job_key.empty()) claim.local_key = fmt::format("parent={};", launcher_pid());
  variables.text("OMPI_COMM_WORLD_NODE_RANK");
  variables.ignored("OMPI_COMM_WORLD_NODE_RANK", "counts processes on a machine, not machines");
  return claim;
}

std::optional<Claim> read_mpich(Variables& variables) {
  if (!variables.text("PMI_RANK")) return std::nullopt;
  Claim claim("mpich");
  read_rank_and_world(variables, claim, "PMI_RANK", "PMI_SIZE");
  require_both(claim);
  read(variables, claim, claim.local_rank, "MPI_LOCALRANKID", 0, "local rank");
  read(variables, claim, claim.local_world_size, "MPI_LOCALNRANKS", 1, "ranks on this machine");
  claim.local_key = fmt::format("parent={};", launcher_pid());
  return claim;
}

// PMIx reports the world size only to programs that link it.
std::optional<Claim> read_pmix(Variables& variables) {
  if (!variables.text("PMIX_RANK")) return std::nullopt;
  Claim claim("pmix");
  read_rank_and_world(variables, claim, "PMIX_RANK", "YOKE_WORLD_SIZE");
  require_both(claim);
  claim.job_key = key_part(variables, claim, "PMIX_NAMESPACE", "identifies this job");
  return claim;
}

// The shells of sbatch and salloc have no step id, or one of the reserved ones at the upper end.
bool is_srun_step(const std::optional<std::string>& step) {
  return step && step->size() < 10 && step->find_first_not_of("0123456789") == std::string::npos;
}

void read_slurm_sizes(Variables& variables, Claim& claim) {
  const char* name =
      variables.text("SLURM_STEP_TASKS_PER_NODE") ? "SLURM_STEP_TASKS_PER_NODE" : "SLURM_TASKS_PER_NODE";
  std::optional<std::string> text = variables.text(name);
  if (!text || !claim.problem.empty()) return;
  std::vector<int> tasks = expand_tasks_per_node(*text);
  claim.nodes = static_cast<int>(tasks.size());
  claim.one_per_machine =
      std::accumulate(tasks.begin(), tasks.end(), int64_t{0}) == static_cast<int64_t>(tasks.size());
  if (claim.node_rank && *claim.node_rank < *claim.nodes) {
    claim.local_world_size = tasks[static_cast<size_t>(*claim.node_rank)];
    claim.uses.push_back({name, "", true, "ranks on this machine"});
  }
}

void read_slurm_endpoint(Variables& variables, Claim& claim) {
  const char* name = variables.text("SLURM_STEP_NODELIST") ? "SLURM_STEP_NODELIST" : "SLURM_JOB_NODELIST";
  std::optional<std::string> list = variables.text(name);
  if (!list || !claim.problem.empty()) return;
  // Below Linux's ephemeral ports, and hashed so that two jobs on a machine rarely collide.
  int port = 20000 + static_cast<int>(XXH64(claim.job_key.data(), claim.job_key.size(), 0) % 10000);
  claim.endpoint = host_and_port(expand_nodelist(*list).front(), port);
  claim.endpoint_why = fmt::format("coordinator: its first host, port {} derived from job and step", port);
  claim.endpoint_names = {name};
}

std::optional<Claim> read_slurm(Variables& variables) {
  if (!variables.text("SLURM_PROCID") || !variables.text("SLURM_JOB_ID")) return std::nullopt;
  Claim claim("slurm");
  if (!is_srun_step(variables.text("SLURM_STEP_ID"))) {
    std::optional<int> tasks = variables.number("SLURM_NTASKS", 1, kMaxWorldSize, claim.problem);
    claim.problem.clear();
    if (tasks.value_or(1) == 1) return std::nullopt;
    claim.problem = fmt::format(
        "this is the shell of a Slurm job of {} tasks, and only one process runs in it. "
        "Start with srun: `srun PROGRAM`, or on one machine `yoke run --nproc {} PROGRAM`",
        *tasks, *tasks);
    return claim;
  }
  const char* world = variables.text("SLURM_STEP_NUM_TASKS") ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS";
  read_rank_and_world(variables, claim, "SLURM_PROCID", world);
  require_both(claim);
  read(variables, claim, claim.local_rank, "SLURM_LOCALID", 0, "local rank");
  read(variables, claim, claim.node_rank, "SLURM_NODEID", 0, "number of this machine");
  read_generation(variables, claim, "SLURM_RESTART_COUNT");
  claim.job_key = key_part(variables, claim, "SLURM_JOB_ID", "identifies this job") +
                  key_part(variables, claim, "SLURM_STEP_ID", "started by srun; identifies this step");
  read_slurm_sizes(variables, claim);
  read_slurm_endpoint(variables, claim);
  return claim;
}

// Its index says which pod this is, not how many there are.
std::optional<Claim> read_kubernetes(Variables& variables) {
  if (!variables.text("JOB_COMPLETION_INDEX")) return std::nullopt;
  Claim claim("kubernetes");
  read_rank_and_world(variables, claim, "JOB_COMPLETION_INDEX", "YOKE_WORLD_SIZE");
  if (claim.problem.empty() && !claim.world_size) {
    claim.problem = fmt::format(
        "JOB_COMPLETION_INDEX={} shows a pod of an Indexed Job, but not the number of pods. Set "
        "YOKE_WORLD_SIZE (1: every pod on its own) and YOKE_COORDINATOR=HOST:PORT (the headless service of "
        "pod 0)",
        *claim.rank);
  }
  if (claim.world_size == 1) claim.rank = 0;
  claim.local_rank = 0;
  claim.local_world_size = 1;
  claim.node_rank = claim.rank;
  claim.nodes = claim.world_size;
  return claim;
}

std::optional<Claim> read_kubeflow_pod(Variables& variables) {
  Claim claim("kubeflow");
  std::optional<std::string> nodes = variables.text("PET_NNODES");
  std::optional<std::string> each = variables.text("PET_NPROC_PER_NODE");
  for (const char* name : {"PET_NODE_RANK", "PET_MASTER_ADDR", "PET_MASTER_PORT"}) variables.text(name);
  if (!nodes || (*nodes == "1" && each.value_or("1") == "1")) return std::nullopt;
  claim.problem =
      "PET_NNODES is set: this pod was prepared for a launcher. Start with `yoke run PROGRAM`, which takes "
      "the PET_ variables as its flags";
  return claim;
}

std::optional<Claim> read_lone_size(Variables& variables) {
  Claim claim("yoke");
  claim.rank_name = "YOKE_RANK";
  claim.world_name = "YOKE_WORLD_SIZE";
  read(variables, claim, claim.world_size, "YOKE_WORLD_SIZE", 1, "world size");
  if (!claim.world_size && claim.problem.empty()) return std::nullopt;
  if (claim.world_size == 1) claim.rank = 0;
  require_both(claim);
  return claim;
}

}  // namespace

std::vector<Claim> read_claims(Variables& variables) {
  constexpr std::array kReaders = {read_yoke,  read_torchrun,     read_open_mpi,   read_mpich,    read_pmix,
                                   read_slurm, read_kubeflow_pod, read_kubernetes, read_lone_size};
  std::vector<Claim> claims;
  for (auto* reader : kReaders) {
    if (std::optional<Claim> claim = reader(variables)) claims.push_back(std::move(*claim));
  }
  return claims;
}

int launcher_pid() {
  // A shell around each rank must not give every rank a different parent.
  constexpr int kMaxDepth = 16;
  int pid = ::getppid();
  for (int depth = 0; depth < kMaxDepth && pid > 1; ++depth) {
    std::ifstream file(fmt::format("/proc/{}/stat", pid));
    std::string line;
    std::getline(file, line);
    size_t open = line.find('(');
    size_t close = line.rfind(')');
    if (open == std::string::npos || close == std::string::npos || close + 4 >= line.size()) break;
    std::string name = line.substr(open + 1, close - open - 1);
    for (const char* known :
         {"hydra_pmi_proxy", "orted", "orterun", "prted", "prterun", "mpirun", "mpiexec", "slurmstepd"}) {
      if (name.rfind(known, 0) == 0) return pid;
    }
    pid = std::atoi(line.c_str() + close + 4);
  }
  return ::getppid();
}

std::string short_hash(const std::string& text) {
  return fmt::format("{:016x}", XXH64(text.data(), text.size(), 0));
}

std::string host_and_port(const std::string& host, int port) {
  bool v6 = host.find(':') != std::string::npos && host.front() != '[';
  return v6 ? fmt::format("[{}]:{}", host, port) : fmt::format("{}:{}", host, port);
}

}  // namespace yoke::cluster
