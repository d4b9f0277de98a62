#include "yoke/collab/client.h"

#include "yoke/base/error.h"
#include "yoke/base/fault.h"
#include "yoke/collab/meeting.h"
#include "yoke/collab/meeting_fields.h"

namespace yoke::collab {
namespace {

using Json = nlohmann::json;

std::unique_ptr<net::Connection> meet(const Ticket& ticket, Deadline deadline) {
  try {
    return net::dial(ticket.meeting, job_ticket(ticket), {.purpose = "collab.meet"}, deadline);
  } catch (const net::HandshakeRefused&) {
    throw Error(
        ExitCode::kRendezvous,
        fmt::format("collab: the meeting point at {} refused the ticket: it belongs to another run than "
                    "'{}', or that address to another program. Next: ask for a new ticket",
                    ticket.meeting.text(), ticket.run_id));
  } catch (const Error& error) {
    throw Error(ExitCode::kRendezvous,
                fmt::format("collab: no meeting point of run '{}' at {}: {}. Next: is `yoke collab start` "
                            "running, and its port reachable?",
                            ticket.run_id, ticket.meeting.text(), error.what()));
  }
}

}  // namespace

MeetingClient::MeetingClient(const Ticket& ticket, Deadline deadline)
    : where_(ticket.meeting.text()), connection_(meet(ticket, deadline)) {}

Json MeetingClient::call(const Json& request, Deadline deadline) {
  const std::string text = request.dump(-1, ' ', false, Json::error_handler_t::replace);
  std::vector<std::byte> answer;
  try {
    connection_->post_copy({.type = net::FrameType::kRequest}, net::as_bytes(text));
    connection_->flush_all(deadline);
    net::FrameHeader header;
    answer = connection_->receive_frame(header, deadline);
  } catch (const Error& error) {
    throw MeetingLost(
        "collab: lost the meeting point at {} during '{}': {}. Next: join again when it is back", where_,
        request.value("type", "?"), error.what());
  }
  Json reply = Json::parse(reinterpret_cast<const char*>(answer.data()),
                           reinterpret_cast<const char*>(answer.data()) + answer.size(), nullptr, false);
  if (!reply.is_object() || !reply.contains("type"))
    throw CommError("collab: the meeting point at {} sent no valid reply to '{}'", where_,
                    request.value("type", "?"));
  if (reply.at("type") == "refused")
    throw Error(ExitCode::kRendezvous, fmt::format("collab: refused by the meeting point at {}: {}", where_,
                                                   reply.value("why", "no reason given")));
  return reply;
}

Welcome join_run(MeetingClient& client, const Identity& identity, const Hello& hello, Deadline deadline) {
  const bool other_version = fault::at(fault::Point::kCollabHello) == fault::Effect::kCorrupt;
  const Json challenge = client.call({{"type", "hello"},
                                      {"version", kProtocolVersion + (other_version ? 1 : 0)},
                                      {"run", hello.run},
                                      {"key", identity.public_key()},
                                      {"host", net::host_name()},
                                      {"address", hello.address},
                                      {"upload", hello.link.upload},
                                      {"download", hello.link.download}},
                                     deadline);
  const Json welcome = client.call(
      {{"type", "prove"}, {"signature", identity.sign(proof_text(text_field(challenge, "nonce")))}},
      deadline);
  return {static_cast<int>(integer_field(welcome, "peer", 0, INT32_MAX)),
          integer_field(welcome, "epoch", 0, INT64_MAX), integer_field(welcome, "steps", 0, INT64_MAX)};
}

}  // namespace yoke::collab
