#include "yoke/net/handshake.h"

#include <cstring>

#include "yoke/base/error.h"
#include "yoke/net/wire.h"

namespace yoke::net::handshake {
namespace {

constexpr uint32_t kHelloMagic = 0x314f4c48;      // "HLO1"
constexpr uint32_t kChallengeMagic = 0x314c4843;  // "CHL1"
constexpr uint8_t kVersion = 1;
constexpr size_t kMaxPurpose = 32;
constexpr size_t kNonceBytes = 32;

constexpr size_t kAtVersion = 4, kAtProtection = 5, kAtPurposeLength = 6, kAtZero = 7, kAtGeneration = 8,
                 kAtRank = 12, kAtCallee = 16, kAtLane = 20, kAtGroup = 24, kAtJob = 32, kAtPurpose = 64,
                 kAtNonce = 96;
static_assert(kAtNonce + kNonceBytes == kHelloBytes);

Secret secret_of(const JobTicket& ticket) {
  return ticket.protection == Protection::kNone ? Secret::known_to_all() : ticket.secret;
}

Digest sign(const JobTicket& ticket, const std::string& label, const Hello& hello,
            const Challenge& challenge) {
  return secret_of(ticket).sign({as_bytes(label), hello, challenge});
}

}  // namespace

Hello make_hello(const JobTicket& ticket, const Introduction& self) {
  YOKE_CHECK(!self.purpose.empty() && self.purpose.size() <= kMaxPurpose, "purpose '{}' of a connection",
             self.purpose);
  Hello hello{};
  std::byte* at = hello.data();
  wire::put(at, kHelloMagic);
  wire::put(at + kAtVersion, kVersion);
  wire::put(at + kAtProtection, static_cast<uint8_t>(ticket.protection));
  wire::put(at + kAtPurposeLength, static_cast<uint8_t>(self.purpose.size()));
  wire::put(at + kAtGeneration, ticket.generation);
  wire::put(at + kAtRank, static_cast<int32_t>(self.rank));
  wire::put(at + kAtCallee, static_cast<int32_t>(self.callee));
  wire::put(at + kAtLane, self.lane);
  wire::put(at + kAtGroup, self.group);
  Digest job = sha256(as_bytes(ticket.job_id));
  std::memcpy(at + kAtJob, job.data(), job.size());
  std::memcpy(at + kAtPurpose, self.purpose.data(), self.purpose.size());
  fill_random({at + kAtNonce, kNonceBytes});
  return hello;
}

Challenge make_challenge() {
  Challenge challenge{};
  wire::put(challenge.data(), kChallengeMagic);
  wire::put(challenge.data() + 4, kVersion);
  fill_random({challenge.data() + 8, kNonceBytes});
  return challenge;
}

std::optional<Introduction> read_hello(const Hello& hello, std::string& why) {
  const std::byte* at = hello.data();
  if (wire::get<uint32_t>(at) != kHelloMagic) {
    why = "it uses another protocol";
    return std::nullopt;
  }
  if (auto version = wire::get<uint8_t>(at + kAtVersion); version != kVersion) {
    why = fmt::format("it uses version {} of the protocol, this program {}", version, kVersion);
    return std::nullopt;
  }
  auto length = wire::get<uint8_t>(at + kAtPurposeLength);
  if (length == 0 || length > kMaxPurpose || wire::get<uint8_t>(at + kAtZero) != 0) {
    why = "its hello message is malformed";
    return std::nullopt;
  }
  Introduction peer;
  peer.rank = wire::get<int32_t>(at + kAtRank);
  peer.callee = wire::get<int32_t>(at + kAtCallee);
  peer.lane = wire::get<uint32_t>(at + kAtLane);
  peer.group = wire::get<uint64_t>(at + kAtGroup);
  peer.purpose.assign(reinterpret_cast<const char*>(at + kAtPurpose), length);
  return peer;
}

std::string compare(const Hello& hello, const JobTicket& ticket) {
  const std::byte* at = hello.data();
  if (auto given = wire::get<uint8_t>(at + kAtProtection); given != static_cast<uint8_t>(ticket.protection))
    return fmt::format("it requests protection '{}', but this job uses '{}'",
                       to_string(static_cast<Protection>(given)), to_string(ticket.protection));
  if (std::memcmp(at + kAtJob, sha256(as_bytes(ticket.job_id)).data(), sizeof(Digest)) != 0)
    return fmt::format("it belongs to another job than '{}'", ticket.job_id);
  if (auto generation = wire::get<uint32_t>(at + kAtGeneration); generation != ticket.generation)
    return fmt::format("it has generation {}, but this job is at {}", generation, ticket.generation);
  auto callee = wire::get<int32_t>(at + kAtCallee);
  if (callee >= 0 && ticket.rank >= 0 && callee != ticket.rank)
    return fmt::format("it wants to reach rank {} and this is rank {}", callee, ticket.rank);
  return "";
}

bool begins_challenge(const Challenge& challenge) {
  return wire::get<uint32_t>(challenge.data()) == kChallengeMagic;
}

std::string check_challenge(const Challenge& challenge) {
  if (wire::get<uint32_t>(challenge.data()) != kChallengeMagic) return "it uses another protocol";
  if (auto version = wire::get<uint8_t>(challenge.data() + 4); version != kVersion)
    return fmt::format("it uses version {} of the protocol, this program {}", version, kVersion);
  return "";
}

Digest caller_proof(const JobTicket& ticket, const Hello& hello, const Challenge& challenge) {
  return sign(ticket, "yoke 1 proof of the caller", hello, challenge);
}

Digest listener_proof(const JobTicket& ticket, const Hello& hello, const Challenge& challenge) {
  return sign(ticket, "yoke 1 proof of the listener", hello, challenge);
}

Keys derive_keys(const JobTicket& ticket, const Hello& hello, const Challenge& challenge) {
  return {sign(ticket, "yoke 1 frames of the caller", hello, challenge),
          sign(ticket, "yoke 1 frames of the listener", hello, challenge)};
}

}  // namespace yoke::net::handshake
