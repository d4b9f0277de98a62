// Machines named by -H host:slots,… or --hostfile.
#pragma once

#include <string>
#include <vector>

namespace yoke::cluster {

struct Host {
  std::string name;
  int slots = 1;
  bool operator==(const Host&) const = default;
};

// "a:4,b:2", "[fd00::1]:2". Throws ConfigError.
std::vector<Host> parse_hosts(const std::string& list);

// One host a line: "a", "a:4" or mpirun's "a slots=4"; # starts a comment. Throws ConfigError with file and
// line.
std::vector<Host> parse_hostfile(const std::string& text, const std::string& file);

// Which of them is this machine, by name or by address. Throws ConfigError when none is, or several are.
int find_this_host(const std::vector<Host>& hosts);

// A word as a shell reads it back.
std::string shell_quoted(const std::string& word);

}  // namespace yoke::cluster
