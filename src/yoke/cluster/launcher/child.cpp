#include "yoke/cluster/launcher/child.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>

#include "yoke/base/error.h"
#include "yoke/base/text.h"
#include "yoke/cluster/launch_env.h"

namespace yoke::cluster {
namespace {

bool is_file(const std::string& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode);
}

[[noreturn]] void not_executable(const std::string& path) {
  if (path.size() > 3 && path.substr(path.size() - 3) == ".py")
    throw ConfigError("{} is not executable. Start it with its interpreter: `yoke run … python3 {}`.", path,
                      path);
  throw ConfigError("{} is not executable. If it is a program: `chmod +x {}`.", path, path);
}

std::vector<char*> pointers(const std::vector<std::string>& texts) {
  std::vector<char*> result;
  for (const std::string& text : texts) result.push_back(const_cast<char*>(text.c_str()));
  result.push_back(nullptr);
  return result;
}

// After fork: async-signal-safe calls only. Returns the errno of the failed call.
int become(const ChildSpec& spec, char** arguments, char** environment, pid_t launcher,
           const Guardian& guardian) {
  ::setpgid(0, 0);
  // The launcher may have died before prctl() took effect; then nobody would send the signal.
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != launcher) ::_exit(128 + SIGKILL);
  guardian.add(::getpid());
  if (::dup2(spec.stdin_fd, 0) < 0 || ::dup2(spec.stdout_fd, 1) < 0 || ::dup2(spec.stderr_fd, 2) < 0)
    return errno;
  ::signal(SIGPIPE, SIG_DFL);
  ::sigprocmask(SIG_SETMASK, &spec.mask, nullptr);
  ::execve(spec.path.c_str(), arguments, environment);
  return errno;
}

[[noreturn]] void refused(const ChildSpec& spec, int error) {
  const char* hint = error == ENOEXEC ? " It is not an executable for this machine and has no #! line." : "";
  throw ConfigError("{}: could not be started: {}.{}", spec.path, describe_errno(error), hint);
}

}  // namespace

std::string find_program(const std::string& name) {
  if (name.empty()) throw ConfigError("PROGRAM is empty. `yoke run --help` shows the form.");
  if (name.find('/') != std::string::npos) {
    if (::access(name.c_str(), F_OK) != 0)
      throw ConfigError("{}: no such program ({}).", name, describe_errno(errno));
    if (!is_file(name)) throw ConfigError("{} is not an executable file.", name);
    if (::access(name.c_str(), X_OK) != 0) not_executable(name);
    return name;
  }
  for (const std::string& folder : split(environment_variable("PATH").value_or("/usr/bin:/bin"), ':')) {
    std::string path = folder + "/" + name;
    if (!folder.empty() && is_file(path) && ::access(path.c_str(), X_OK) == 0) return path;
  }
  if (is_file(name))
    throw ConfigError("{}: not found in PATH. For a program in this folder use ./{}.", name, name);
  throw ConfigError("{}: no such program in PATH. Give its path, for example ./{}.", name, name);
}

pid_t start_child(const ChildSpec& spec, const Guardian& guardian) {
  std::vector<char*> arguments = pointers(spec.arguments);
  std::vector<char*> environment = pointers(spec.environment);
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0)
    throw Error(ExitCode::kInternal, "launcher: no pipe: " + describe_errno(errno));
  net::Descriptor from(ends[0]);
  net::Descriptor to(ends[1]);
  pid_t launcher = ::getpid();
  pid_t pid = ::fork();
  if (pid < 0) throw Error(ExitCode::kInternal, "launcher: cannot fork: " + describe_errno(errno));
  if (pid == 0) {
    int error = become(spec, arguments.data(), environment.data(), launcher, guardian);
    [[maybe_unused]] ssize_t written = ::write(ends[1], &error, sizeof error);
    ::_exit(127);
  }
  ::setpgid(pid, pid);  // also in the child: whichever runs first wins
  to.reset();
  int error = 0;
  // Returns at exec, which closes the other end, or with the errno.
  ssize_t got = 0;
  while ((got = ::read(from.get(), &error, sizeof error)) < 0 && errno == EINTR) {
  }
  if (got != sizeof error) return pid;
  guardian.remove(pid);
  ::waitpid(pid, nullptr, 0);
  refused(spec, error);
}

bool is_stopped(pid_t pid) {
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  std::string line;
  std::getline(file, line);
  size_t end = line.rfind(')');  // the name in parentheses may contain anything; the state follows it
  return end != std::string::npos && end + 2 < line.size() && line[end + 2] == 'T';
}

}  // namespace yoke::cluster
