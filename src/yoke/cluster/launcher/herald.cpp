#include "yoke/cluster/launcher/herald.h"

#include "yoke/base/error.h"
#include "yoke/base/log.h"
#include "yoke/cluster/session_wire.h"

namespace yoke::cluster {

void tell_coordinator(const JobPlace& place, const FailureReport& report) try {
  Deadline deadline = Deadline::after(1);
  net::Introduction self;
  self.purpose = "control";
  auto connection = net::introduce(net::connect_to(net::parse_address(place.endpoint), deadline),
                                   place.ticket, self, deadline);
  nlohmann::json head = control::to_json(report);
  head["verb"] = "ended";
  net::FrameHeader header;
  header.type = net::FrameType::kRequest;
  header.context = 1;
  connection->post_copy(header, control::encode(head));
  connection->flush_all(deadline);
  connection->receive_frame(header, deadline);  // it has been heard
} catch (const Error& error) {
  log::debug("the coordinator was not told that {}: {}", report.what, error.what());
}

}  // namespace yoke::cluster
