#include "yoke/cluster/launcher/herald.h"

#include "yoke/base/error.h"
#include "yoke/base/log.h"
#include "yoke/cluster/session_wire.h"
#include "yoke/cluster/whereabouts.h"

namespace yoke::cluster {
namespace {

// One request and its reply.
control::Note ask(const JobPlace& place, const nlohmann::json& head) {
  Deadline deadline = Deadline::after(1);
  net::Introduction self;
  self.purpose = "control";
  const net::Address coordinator = whereabouts(place.endpoint, place.ticket.job_id).find(deadline);
  auto connection = net::introduce(net::connect_to(coordinator, deadline), place.ticket, self, deadline);
  net::FrameHeader header;
  header.type = net::FrameType::kRequest;
  header.context = 1;
  connection->post_copy(header, control::encode(head));
  connection->flush_all(deadline);
  return control::decode(connection->receive_frame(header, deadline));
}

}  // namespace

void tell_coordinator(const JobPlace& place, const FailureReport& report) try {
  nlohmann::json head = control::to_json(report);
  head["verb"] = "ended";
  ask(place, head);
} catch (const Error& error) {
  log::debug("could not report to the coordinator that {}: {}", report.what, error.what());
}

std::optional<FailureReport> ask_coordinator(const JobPlace& place, int world_size) try {
  control::Note note = ask(place, {{"verb", "cause"}});
  if (!note.head.contains("kind")) return std::nullopt;
  return control::read_report(note.head, world_size);
} catch (const Error& error) {
  log::debug("could not ask the coordinator for the cause of the failure: {}", error.what());
  return std::nullopt;
}

bool ask_whether_expendable(const JobPlace& place, int rank) try {
  return control::flag(ask(place, {{"verb", "expendable"}, {"rank", rank}}).head, "expendable");
} catch (const Error& error) {
  log::debug("could not ask the coordinator whether the job continues without rank {}: {}", rank,
             error.what());
  return false;
}

bool is_evicted(const JobPlace& place, int rank) try {
  return control::flag(ask(place, {{"verb", "evicted"}, {"rank", rank}}).head, "evicted");
} catch (const Error& error) {
  log::debug("could not ask the coordinator whether rank {} was evicted: {}", rank, error.what());
  return false;
}

}  // namespace yoke::cluster
