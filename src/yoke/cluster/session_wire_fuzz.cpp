// Any bytes are either a control message or a CommError; likewise what is read out of it.
#include <cstddef>
#include <cstdint>

#include "yoke/base/error.h"
#include "yoke/cluster/session_wire.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace yoke::cluster;
  auto attempt = [](const auto& read) {
    try {
      read();
    } catch (const yoke::CommError&) {
    }
  };
  attempt([&] {
    control::Note note = control::decode(std::as_bytes(std::span(data, size)));
    attempt([&] { control::read_member(note.head); });
    attempt([&] { control::read_report(note.head, 4); });
    attempt([&] { control::read_members(note.head, 4); });
    attempt([&] { control::read_epoch(note.head); });
    attempt([&] { control::ranks(note.head, "missing", 4); });
    attempt([&] { control::read_links(note.head, "links", 4); });
    attempt([&] { control::seconds(note.head, "heartbeat"); });
    attempt([&] { control::flag(note.head, "good"); });
    attempt([&] { control::number(note.head, "operation", 0, INT64_MAX); });
  });
  return 0;
}
