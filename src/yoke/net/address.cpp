#include "yoke/net/address.h"

#include <arpa/inet.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <climits>

#include "yoke/base/error.h"
#include "yoke/base/text.h"

namespace yoke::net {
namespace {

constexpr size_t kMaxHost = 255;
constexpr size_t kMaxUnixName = 100;  // sun_path has 108 bytes, the first of which is 0

[[noreturn]] void refuse(const std::string& text, const std::string& why) {
  std::string shown = text.size() > 80 ? text.substr(0, 80) + "…" : text;
  std::replace_if(
      shown.begin(), shown.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; }, '?');
  throw ConfigError("address \"{}\": {}. Accepted: host:port, 10.0.0.1:29400, [::1]:29400, unix:@name", shown,
                    why);
}

bool is_ipv6(const std::string& host) {
  in6_addr unused;
  return ::inet_pton(AF_INET6, host.substr(0, host.find('%')).c_str(), &unused) == 1;
}

int parse_port(const std::string& whole, const std::string& digits) {
  int port = -1;
  auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), port);
  if (digits.empty() || error != std::errc() || end != digits.data() + digits.size() || port < 0 ||
      port > 65535)
    refuse(whole, "the port must be a number from 0 to 65535");
  return port;
}

Address parse_unix(const std::string& text) {
  if (text.size() < 7 || text[5] != '@') refuse(text, "a unix address has the form unix:@NAME");
  Address address;
  address.name = text.substr(6);
  if (address.name.size() > kMaxUnixName) refuse(text, "the name has more than 100 characters");
  for (unsigned char c : address.name)
    if (c <= 0x20 || c >= 0x7f) refuse(text, "the name contains a non-printable character");
  return address;
}

void check_host(const std::string& text, const std::string& host) {
  if (host.empty()) refuse(text, "the host is missing");
  if (host.size() > kMaxHost) refuse(text, "the host has more than 255 characters");
  for (unsigned char c : host)
    if (!std::isalnum(c) && c != '.' && c != '-' && c != '_') refuse(text, "not a host name");
}

Address parse_bracketed(const std::string& text, int default_port) {
  size_t close = text.find(']');
  if (close == std::string::npos) refuse(text, "the closing ] is missing");
  Address address;
  address.host = text.substr(1, close - 1);
  address.port = default_port;
  if (!is_ipv6(address.host)) refuse(text, "the text in [] is not an IPv6 address");
  if (address.host.find('%') != std::string::npos) {
    std::string scope = address.host.substr(address.host.find('%') + 1);
    check_host(text, scope);
  }
  if (close + 1 == text.size()) return address;
  if (text[close + 1] != ':') refuse(text, "after ] comes :port");
  address.port = parse_port(text, text.substr(close + 2));
  return address;
}

}  // namespace

std::string Address::text() const {
  if (is_unix()) return "unix:@" + name;
  bool v6 = host.find(':') != std::string::npos;
  return fmt::format("{}{}{}:{}", v6 ? "[" : "", host, v6 ? "]" : "", port);
}

Address parse_address(const std::string& given, int default_port) {
  std::string text = trim(given);
  if (text.rfind("unix:", 0) == 0) return parse_unix(text);
  if (!text.empty() && text[0] == '[') return parse_bracketed(text, default_port);
  Address address;
  address.port = default_port;
  size_t colon = text.rfind(':');
  if (colon != std::string::npos && text.find(':') != colon) {
    if (!is_ipv6(text) || text.find('%') != std::string::npos) refuse(text, "an IPv6 address must be in []");
    address.host = text;
    return address;
  }
  address.host = text.substr(0, colon);
  check_host(text, address.host);
  if (colon != std::string::npos) address.port = parse_port(text, text.substr(colon + 1));
  return address;
}

std::string host_name() {
  char name[HOST_NAME_MAX + 1] = {};
  if (::gethostname(name, HOST_NAME_MAX) != 0 || name[0] == 0) return "localhost";
  return name;
}

}  // namespace yoke::net
