// Starting one process, so that it cannot outlive us.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <string>
#include <vector>

#include "yoke/cluster/launcher/guardian.h"

namespace yoke::cluster {

// The file that `name` stands for, as a shell would find it. Throws ConfigError: not found, not a file, not
// executable.
std::string find_program(const std::string& name);

struct ChildSpec {
  std::string path;
  std::vector<std::string> arguments;    // with the name
  std::vector<std::string> environment;  // "NAME=value"
  int stdin_fd = 0;
  int stdout_fd = 1;
  int stderr_fd = 2;
  sigset_t mask{};  // signals blocked in the child
};

// Starts it in a process group of its own, to be killed when this thread dies. Returns when the program is
// running. Throws ConfigError when the system refuses to execute it.
pid_t start_child(const ChildSpec& spec, const Guardian& guardian);

// Whether it is stopped (SIGSTOP and its like) and cannot act. Not: in a debugger's hands.
bool is_stopped(pid_t pid);

}  // namespace yoke::cluster
