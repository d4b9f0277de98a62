// Starts one process such that it cannot outlive the launcher.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <string>
#include <vector>

#include "yoke/cluster/launcher/guardian.h"

namespace yoke::cluster {

// Resolves `name` as a shell would. Throws ConfigError: not found, not a file, not executable.
std::string find_program(const std::string& name);

struct ChildSpec {
  std::string path;
  std::vector<std::string> arguments;    // including argv[0]
  std::vector<std::string> environment;  // "NAME=value"
  int stdin_fd = 0;
  int stdout_fd = 1;
  int stderr_fd = 2;
  sigset_t mask{};  // signals blocked in the child
};

// Starts it in its own process group, to be killed when this thread dies. Returns once exec has succeeded.
// Throws ConfigError if the system refuses to execute it.
pid_t start_child(const ChildSpec& spec, const Guardian& guardian);

// Whether it is stopped (SIGSTOP or similar). False while it is traced by a debugger.
bool is_stopped(pid_t pid);

}  // namespace yoke::cluster
