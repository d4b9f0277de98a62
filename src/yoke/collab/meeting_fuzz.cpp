// Any sequence of requests on any links leaves the meeting point consistent: it replies, closes, never fails.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "yoke/base/log.h"
#include "yoke/collab/group.h"
#include "yoke/collab/meeting.h"
#include "yoke/collab/meeting_fields.h"

// Each line is a request; its first character selects the link.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace yoke::collab;
  yoke::log::set_level(yoke::log::Level::kSilent);
  MeetingOptions options;
  options.run = {{"model", "m"}};
  options.steps = 3;
  options.elements = 100;
  options.target_batch = 8;
  options.group_size = 1 + static_cast<int64_t>(size % 3);
  Meeting meeting(options, 0);
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  double now = 0;
  while (!rest.empty()) {
    std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    if (line.empty()) continue;
    const nlohmann::json message = nlohmann::json::parse(line.substr(1), nullptr, false);
    meeting.request(line[0] % 4, message, now += 0.1);
    meeting.tick(now);
    try {
      parse_group(message);
    } catch (const BadMessage&) {
    }
    for (const Meeting::Reply& reply : meeting.take_replies())
      if (!reply.message.contains("type")) std::abort();
  }
  if (meeting.status(now).at("accumulated").get<int64_t>() < 0) std::abort();
  return 0;
}
