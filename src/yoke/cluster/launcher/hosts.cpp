#include "yoke/cluster/launcher/hosts.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <charconv>
#include <memory>
#include <set>

#include "yoke/base/error.h"
#include "yoke/base/text.h"
#include "yoke/net/address.h"

namespace yoke::cluster {
namespace {

constexpr int kMaxSlots = 65536;

bool parse_slots(const std::string& text, int& slots) {
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), slots);
  return error == std::errc() && end == text.data() + text.size() && slots >= 1 && slots <= kMaxSlots;
}

// `where`: start of the error text.
Host parse_host(const std::string& text, const std::string& where) {
  Host host;
  size_t bracket = text.find(']');
  size_t colon = text.find(':', bracket == std::string::npos ? 0 : bracket);
  host.name = text.substr(0, colon);
  if (host.name.size() > 2 && host.name.front() == '[' && host.name.back() == ']')
    host.name = host.name.substr(1, host.name.size() - 2);
  bool good = !host.name.empty() && host.name.find_first_of(" \t[]") == std::string::npos;
  if (colon != std::string::npos) good = good && parse_slots(text.substr(colon + 1), host.slots);
  if (!good) throw ConfigError("{}: \"{}\": expected HOST or HOST:SLOTS, for example node1:4.", where, text);
  return host;
}

std::string address_text(const sockaddr* address) {
  char text[INET6_ADDRSTRLEN] = "";
  if (address->sa_family == AF_INET)
    ::inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(address)->sin_addr, text, sizeof text);
  if (address->sa_family == AF_INET6)
    ::inet_ntop(AF_INET6, &reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr, text, sizeof text);
  return text;
}

std::set<std::string> own_addresses() {
  std::set<std::string> result;
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return result;
  std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(list, ::freeifaddrs);
  for (ifaddrs* one = list; one != nullptr; one = one->ifa_next) {
    if (one->ifa_addr != nullptr) result.insert(address_text(one->ifa_addr));
  }
  result.erase("");
  return result;
}

std::string short_name(const std::string& name) {
  bool address = name.find_first_not_of("0123456789.") == std::string::npos;
  return address ? name : name.substr(0, name.find('.'));
}

bool is_this_machine(const std::string& name, const std::set<std::string>& addresses) {
  std::string own = net::host_name();
  if (name == own || name == "localhost" || short_name(name) == short_name(own) || addresses.count(name) != 0)
    return true;
  addrinfo* list = nullptr;
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  if (::getaddrinfo(name.c_str(), nullptr, &hints, &list) != 0) return false;
  std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(list, ::freeaddrinfo);
  for (addrinfo* one = list; one != nullptr; one = one->ai_next) {
    if (addresses.count(address_text(one->ai_addr)) != 0) return true;
  }
  return false;
}

bool is_loopback(const sockaddr* address) {
  std::string text = address_text(address);
  return text.rfind("127.", 0) == 0 || text == "::1";
}

}  // namespace

bool is_loopback_only(const std::string& name) {
  addrinfo* list = nullptr;
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  if (::getaddrinfo(name.c_str(), nullptr, &hints, &list) != 0) return false;
  std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(list, ::freeaddrinfo);
  for (addrinfo* one = list; one != nullptr; one = one->ai_next)
    if (!is_loopback(one->ai_addr)) return false;
  return list != nullptr;
}

std::vector<Host> parse_hosts(const std::string& list) {
  std::vector<Host> hosts;
  for (const std::string& item : split(list, ',')) hosts.push_back(parse_host(item, "-H"));
  if (hosts.empty()) throw ConfigError("-H: the list is empty. Accepted: HOST:SLOTS,HOST:SLOTS,…");
  return hosts;
}

std::vector<Host> parse_hostfile(const std::string& text, const std::string& file) {
  std::vector<Host> hosts;
  int number = 0;
  for (const std::string& raw : split(text, '\n')) {
    ++number;
    std::string line = trim(raw.substr(0, raw.find('#')));
    if (line.empty()) continue;
    size_t blank = line.find_first_of(" \t");
    std::string name = line.substr(0, blank);
    std::string rest = blank == std::string::npos ? "" : trim(line.substr(blank));
    std::string where = file + ":" + std::to_string(number);
    Host host = parse_host(name, where);
    if (!rest.empty() && (rest.rfind("slots=", 0) != 0 || !parse_slots(rest.substr(6), host.slots)))
      throw ConfigError("{}: \"{}\": expected slots=N after the name.", where, rest);
    hosts.push_back(host);
  }
  if (hosts.empty())
    throw ConfigError("{}: no hosts. Accepted: HOST, HOST:SLOTS or HOST slots=N, one per line.", file);
  return hosts;
}

int find_this_host(const std::vector<Host>& hosts) {
  std::set<std::string> addresses = own_addresses();
  std::vector<int> found;
  std::vector<std::string> names;
  for (size_t i = 0; i < hosts.size(); ++i) {
    names.push_back(hosts[i].name);
    if (is_this_machine(hosts[i].name, addresses)) found.push_back(static_cast<int>(i));
  }
  if (found.size() == 1) return found.front();
  throw ConfigError("{} of the hosts {} this machine ({}). Select one with --node-rank 0..{}.",
                    found.empty() ? "none" : "more than one", join(names) + (found.empty() ? " is" : " are"),
                    net::host_name(), hosts.size() - 1);
}

std::string shell_quoted(const std::string& word) {
  constexpr const char* kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./:,@%";
  if (!word.empty() && word.find_first_not_of(kPlain) == std::string::npos) return word;
  std::string result = "'";
  for (char c : word) result += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return result + "'";
}

}  // namespace yoke::cluster
