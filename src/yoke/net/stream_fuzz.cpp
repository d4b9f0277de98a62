// Any bytes after a good handshake: frames, an error with the peer's name, or waiting for more. The first
// byte chooses whether headers get a right MAC (as a peer gone mad would send them) and the size of pieces.
#include <sys/socket.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "yoke/base/error.h"
#include "yoke/net/connection_impl.h"
#include "yoke/net/test_pair.h"
#include "yoke/net/wire.h"

namespace {

using namespace yoke::net;

constexpr uint64_t kMemory = 1 << 20;

// Puts a right sequence, job and MAC into what would be the headers.
void make_credible(std::vector<std::byte>& bytes, const JobTicket& ticket, const HeaderSeal& seal) {
  uint64_t sequence = 0;
  for (size_t at = 0; at + kFrameHeaderBytes <= bytes.size();) {
    std::array<std::byte, kFrameHeaderBytes> head;
    std::memcpy(head.data(), bytes.data() + at, head.size());
    FrameHeader shape;
    shape.type = static_cast<FrameType>(1 + static_cast<unsigned>(head[5]) % 7);
    shape.generation = ticket.generation;
    shape.sequence = sequence++;
    shape.length = wire::get<uint16_t>(head.data() + 40) % 512;
    head = encode(shape, wire::get<uint32_t>(sha256(as_bytes(ticket.job_id)).data()),
                  wire::get<uint32_t>(head.data()), 0);
    set_mac(head, seal.over(head));
    std::memcpy(bytes.data() + at, head.data(), head.size());
    at += kFrameHeaderBytes + shape.length;
  }
}

void read_all(Connection& connection) {
  std::vector<std::byte> payload;
  while (const FrameHeader* header = connection.next_header()) {
    if (header->length > max_payload(header->type)) std::abort();
    if (header->length > kMemory) return;
    payload.resize(header->length);
    if (!connection.receive(payload)) return;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  constexpr Protection kLevels[] = {Protection::kIntegrity, Protection::kEncrypted, Protection::kNone};
  JobTicket ticket = testing::ticket_of(kLevels[data[0] % 3]);
  const size_t piece = data[1] * 4u + 1;
  DirectionKey key{};
  std::vector<std::byte> bytes(size - 2);
  std::memcpy(bytes.data(), data + 2, bytes.size());
  if ((data[0] & 0x80) != 0) make_credible(bytes, ticket, HeaderSeal(ticket.protection, key));
  auto [near, far] = testing::socket_pair();
  auto connection = make_connection(std::move(far), ticket, {4, "test"}, key, key);
  try {
    for (size_t at = 0; at < bytes.size(); at += piece) {
      if (::send(near.get(), bytes.data() + at, std::min(piece, bytes.size() - at),
                 MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
        break;
      read_all(*connection);
    }
  } catch (const yoke::CommError& error) {
    if (std::string(error.what()).find("rank 4") == std::string::npos) std::abort();
  }
  return 0;
}
