// Machines given by -H host:slots,… or --hostfile.
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

// One host per line: "a", "a:4" or mpirun's "a slots=4"; # starts a comment. Throws ConfigError with file and
// line.
std::vector<Host> parse_hostfile(const std::string& text, const std::string& file);

// Index of this machine, by name or address. Throws ConfigError if there is none or several match.
int find_this_host(const std::vector<Host>& hosts);

// Quotes a word for a shell.
std::string shell_quoted(const std::string& word);

// Whether `name` resolves to loopback addresses only, which other machines cannot reach. False if it does not
// resolve.
bool is_loopback_only(const std::string& name);

}  // namespace yoke::cluster
