// What a peer needs to join a run: where it meets the others, and the run's key. One line of text that can be
// pasted:
//
//   yoke1/example.org:7000/albert-4f2a/9c1e…64 hexadecimal digits…/5d0c91aa
//
// With "etcd:HOST:PORT,HOST:PORT" in place of the address the meeting point may move. The last word is a
// checksum, so that a ticket cut off by a mail program is refused at once. Whoever has the ticket can join:
// files are written with mode 0600.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "yoke/net/connection.h"

namespace yoke::collab {

struct Ticket {
  net::Address meeting;
  std::vector<net::Address>
      etcd;            // whose members know where the run meets (etcd_meeting.h); empty: at `meeting`
  std::string run_id;  // letters, digits, '-', '_', '.'; 1 to 64
  net::Secret key = net::Secret::random();
};

std::string to_text(const Ticket& ticket);

// Throws ConfigError naming what is wrong: prefix, number of parts, address, run id, key, checksum.
Ticket parse_ticket(const std::string& text);

// A ticket given as text, or as the path of a file that contains one.
Ticket read_ticket(const std::string& text_or_file);

// Readable by this user only.
void write_ticket(const std::filesystem::path& file, const Ticket& ticket);

// For connections of this run: authenticated with its key, and encrypted.
net::JobTicket job_ticket(const Ticket& ticket);

}  // namespace yoke::collab
