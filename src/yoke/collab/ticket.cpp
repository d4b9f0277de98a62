#include "yoke/collab/ticket.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>

#include "yoke/base/error.h"
#include "yoke/base/file.h"
#include "yoke/base/text.h"
#include "yoke/cluster/whereabouts.h"
#include "yoke/kernels/crc32c.h"

namespace yoke::collab {
namespace {

constexpr const char* kPrefix = "yoke1";
constexpr size_t kMaxText = 1024;
constexpr const char* kHint = "Copy the whole line that `yoke collab start` printed.";

std::string checksum(const std::string& text) {
  return fmt::format("{:08x}", kernels::crc32c(text.data(), text.size()));
}

bool is_run_id(const std::string& text) {
  return !text.empty() && text.size() <= 64 && std::all_of(text.begin(), text.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.';
  });
}

std::string place_of(const Ticket& ticket) {
  if (ticket.etcd.empty()) return ticket.meeting.text();
  std::vector<std::string> members;
  for (const net::Address& member : ticket.etcd) members.push_back(member.text());
  return cluster::kEtcdPrefix + join(members, ",");
}

std::string without_checksum(const Ticket& ticket) {
  return fmt::format("{}/{}/{}/{}", kPrefix, place_of(ticket), ticket.run_id, ticket.key.to_text());
}

}  // namespace

std::string to_text(const Ticket& ticket) {
  YOKE_CHECK(is_run_id(ticket.run_id), "run id '{}'", ticket.run_id);
  const std::string text = without_checksum(ticket);
  return text + "/" + checksum(text);
}

Ticket parse_ticket(const std::string& given) {
  const std::string text = trim(given);
  if (text.size() > kMaxText)
    throw ConfigError("ticket: {} characters; a ticket has at most {}. {}", text.size(), kMaxText, kHint);
  const std::vector<std::string> parts = split(text, '/');
  if (parts.empty() || parts[0] != kPrefix)
    throw ConfigError("ticket: it does not start with '{}/'. {}", kPrefix, kHint);
  if (parts.size() != 5)
    throw ConfigError("ticket: {} parts between slashes instead of 5: it is incomplete. {}", parts.size(),
                      kHint);
  const std::string checked = text.substr(0, text.rfind('/'));
  if (parts[4] != checksum(checked))
    throw ConfigError("ticket: its checksum is wrong: characters were lost or changed. {}", kHint);
  Ticket ticket;
  const std::string etcd = cluster::kEtcdPrefix;
  if (parts[1].starts_with(etcd))
    ticket.etcd = cluster::etcd_members(parts[1].substr(etcd.size()));
  else
    ticket.meeting = net::parse_address(parts[1]);
  if (!ticket.etcd.empty()) {
    // the address follows from it
  } else if (ticket.meeting.is_unix() || ticket.meeting.port <= 0)
    throw ConfigError("ticket: address '{}' instead of HOST:PORT. {}", parts[1], kHint);
  if (!is_run_id(parts[2])) throw ConfigError("ticket: run id '{}' is invalid. {}", parts[2], kHint);
  ticket.run_id = parts[2];
  ticket.key = net::Secret::from_text(parts[3]);
  if (without_checksum(ticket) != checked)
    throw ConfigError("ticket: its parts are not in the form that is written. {}", kHint);
  return ticket;
}

Ticket read_ticket(const std::string& text_or_file) {
  if (text_or_file.starts_with(std::string(kPrefix) + "/")) return parse_ticket(text_or_file);
  return parse_ticket(read_file(text_or_file, kMaxText));
}

void write_ticket(const std::filesystem::path& file, const Ticket& ticket) {
  // Before the key is in it.
  FileDescriptor fd(::open(file.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  if (!fd) throw ConfigError("{}: could not write the ticket: {}", file.string(), describe_errno(errno));
  ::fchmod(fd.get(), 0600);
  const std::string text = to_text(ticket) + "\n";
  if (::write(fd.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size()))
    throw ConfigError("{}: could not write the ticket: {}", file.string(), describe_errno(errno));
}

net::JobTicket job_ticket(const Ticket& ticket) {
  net::JobTicket job;
  job.job_id = "collab " + ticket.run_id;
  job.secret = ticket.key;
  job.protection = net::Protection::kEncrypted;
  return job;
}

}  // namespace yoke::collab
