// Signals as a pollable descriptor, while this object exists. One per process.
#pragma once

#include <signal.h>

#include <vector>

#include "yoke/net/address.h"

namespace yoke::cluster {

class SignalReader {
 public:
  // CHLD, INT, TERM, HUP, QUIT, USR1, USR2, XCPU, except those our parent set to be ignored (nohup).
  SignalReader();
  ~SignalReader();
  SignalReader(const SignalReader&) = delete;
  SignalReader& operator=(const SignalReader&) = delete;

  int fd() const { return fd_.get(); }
  std::vector<int> read();
  const sigset_t& previous_mask() const { return previous_; }  // for children

 private:
  sigset_t previous_{};
  struct sigaction previous_pipe_ {};
  struct sigaction previous_child_ {};
  net::Descriptor fd_;
};

// "SIGKILL".
const char* signal_name(int signal);

}  // namespace yoke::cluster
