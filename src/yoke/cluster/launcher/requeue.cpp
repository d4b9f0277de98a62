#include "yoke/cluster/launcher/requeue.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <thread>

#include "yoke/base/deadline.h"
#include "yoke/base/error.h"
#include "yoke/base/log.h"
#include "yoke/base/text.h"
#include "yoke/cluster/launch_env.h"
#include "yoke/cluster/launcher/child.h"
#include "yoke/cluster/launcher/verdict.h"

namespace yoke::cluster {
namespace {

constexpr const char* kProgram = "scontrol";

std::string find_scontrol() {
  try {
    return find_program(kProgram);
  } catch (const ConfigError&) {
    throw ConfigError("--requeue: there is no {} in PATH. Hint: add the folder of Slurm's commands to PATH.",
                      kProgram);
  }
}

// In memory, so that the program never waits for a reader.
net::Descriptor output_file() {
  net::Descriptor file(::memfd_create("requeue", MFD_CLOEXEC));
  if (!file) throw Error(ExitCode::kInternal, "launcher: no memory file: " + describe_errno(errno));
  return file;
}

std::string beginning_of(int file) {
  std::array<char, 500> text{};
  const ssize_t bytes = ::pread(file, text.data(), text.size(), 0);
  return trim(std::string(text.data(), bytes > 0 ? static_cast<size_t>(bytes) : 0));
}

// The wait status; empty: it did not end in time, and was killed.
std::optional<int> wait_for(pid_t pid, const Guardian& guardian, const Deadline& deadline) {
  int status = 0;
  bool in_time = true;
  pid_t ended = 0;
  while ((ended = ::waitpid(pid, &status, WNOHANG)) == 0) {
    if (in_time && deadline.passed()) {
      in_time = false;
      ::kill(-pid, SIGKILL);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  YOKE_CHECK(ended == pid, "scontrol {} was reaped elsewhere", pid);
  guardian.remove(pid);
  return in_time ? std::optional(status) : std::nullopt;
}

}  // namespace

SlurmJob find_slurm_job(const std::function<std::optional<std::string>(const std::string&)>& variable) {
  SlurmJob job;
  job.id = variable("SLURM_JOB_ID").value_or("");
  if (job.id.empty())
    throw ConfigError(
        "--requeue: this is not a Slurm job (SLURM_JOB_ID is not set). Start it with sbatch or srun, or omit "
        "--requeue.");
  job.whole = variable("SLURM_JOB_NUM_NODES").value_or("1") == "1";
  job.first = variable("SLURM_PROCID").value_or("0") == "0";
  if (job.first) job.scontrol = find_scontrol();
  return job;
}

bool announces_the_end(int signal) {
  return signal == SIGTERM || signal == SIGUSR1 || signal == SIGUSR2 || signal == SIGXCPU;
}

void requeue(const SlurmJob& job, const sigset_t& mask, const Guardian& guardian, double seconds) {
  const net::Descriptor null(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  const net::Descriptor output = output_file();
  ChildSpec spec;
  spec.path = job.scontrol;
  spec.arguments = {kProgram, "requeue", job.id};
  for (const auto& [name, value] : environment()) spec.environment.push_back(name + "=" + value);
  spec.stdin_fd = null.get();
  spec.stdout_fd = spec.stderr_fd = output.get();
  spec.mask = mask;
  const std::string command = join(spec.arguments, " ");
  log::info("{}: the same command resumes when Slurm starts the job again", command);
  const std::optional<int> status = wait_for(start_child(spec, guardian), guardian, Deadline::after(seconds));
  if (status == 0) return log::info("Slurm job {} is requeued", job.id);
  const std::string said = beginning_of(output.get());
  throw ConfigError(
      "--requeue: `{}` {}{}. The run is stopped with its state saved. Hint: jobs that may be requeued are "
      "submitted with `sbatch --requeue`; requeue this one by hand.",
      command, status ? describe_status(*status) : fmt::format("did not end within {:.0f} s", seconds),
      said.empty() ? "" : ": " + said);
}

}  // namespace yoke::cluster
