#include "yoke/cluster/world_self.h"

#include <unistd.h>

#include <array>
#include <fstream>

#include "yoke/base/error.h"
#include "yoke/base/text.h"

namespace yoke::cluster {
namespace {

std::string first_line(const char* file) {
  std::ifstream stream(file);
  std::string line;
  std::getline(stream, line);
  return line;
}

std::string link_target(const char* file) {
  std::array<char, 128> target{};
  ssize_t length = ::readlink(file, target.data(), target.size() - 1);
  return length > 0 ? std::string(target.data(), static_cast<size_t>(length)) : "?";
}

bool is_loopback(const std::string& host) {
  return host.rfind("127.", 0) == 0 || host == "::1";
}

// The address of the outgoing interface. Nothing is sent to this address, which is reserved for
// documentation.
std::string outward_address() {
  try {
    return net::local_address_towards({"192.0.2.1", 9, ""});
  } catch (const Error&) {
    return net::local_address_towards({"2001:db8::1", 9, ""});
  }
}

}  // namespace

std::string machine_id() {
  return fmt::format("{}/{}/{}/{}/{}", first_line("/proc/sys/kernel/random/boot_id"),
                     link_target("/proc/self/ns/net"), link_target("/proc/self/ns/ipc"),
                     link_target("/proc/self/ns/mnt"), ::geteuid());
}

Member describe_self(const Identity& identity) {
  Member self;
  self.rank = identity.rank;
  self.host = net::host_name();
  self.machine = machine_id();
  self.pid = ::getpid();
  std::vector<std::string> parts;
  for (const SeenVariable& variable : identity.variables)
    if (variable.used && (variable.why == "rank" || variable.why == "world size"))
      parts.push_back(fmt::format("{}={}", variable.name, variable.value.substr(0, 32)));
  if (!parts.empty()) self.origin = join(parts);
  return self;
}

net::Address data_address(const net::Address& coordinator, bool one_machine) {
  net::Address address;
  address.host = net::local_address_towards(coordinator);
  if (one_machine && !is_loopback(address.host)) address.host = "127.0.0.1";
  if (!one_machine && is_loopback(address.host)) address.host = outward_address();
  return address;
}

net::Address coordinator_address(const net::Address& endpoint, bool one_machine) {
  if (endpoint.is_unix() || one_machine || is_loopback(endpoint.host)) return endpoint;
  if (!is_loopback(net::local_address_towards(endpoint))) return endpoint;
  net::Address address = endpoint;
  address.host = outward_address();
  return address;
}

}  // namespace yoke::cluster
