// The four messages of the handshake, as plain bytes, and its proofs.
//
//   caller → listener   hello      identity, job, purpose, a fresh nonce
//   listener → caller   challenge  a fresh nonce
//   caller → listener   proof      HMAC over both
//   listener → caller   verdict    one byte; if accepted, followed by the listener's own HMAC over all of it
//
// An unauthenticated caller learns nothing but the protocol version: all refusals look the same.
#pragma once

#include <array>
#include <optional>
#include <string>

#include "yoke/net/connection.h"
#include "yoke/net/protect.h"

namespace yoke::net::handshake {

inline constexpr size_t kHelloBytes = 128;
inline constexpr size_t kChallengeBytes = 40;
inline constexpr size_t kProofBytes = 32;
inline constexpr size_t kVerdictBytes = 1 + kProofBytes;
inline constexpr std::byte kAccepted{1};
inline constexpr std::byte kTurnedAway{0};

using Hello = std::array<std::byte, kHelloBytes>;
using Challenge = std::array<std::byte, kChallengeBytes>;

Hello make_hello(const JobTicket& ticket, const Introduction& self);
Challenge make_challenge();

// The claimed identity, before any proof. nullopt with `why`: not a hello of this protocol.
std::optional<Introduction> read_hello(const Hello& hello, std::string& why);
// Empty if the hello matches this ticket's job, generation, protection and rank; otherwise the difference.
std::string compare(const Hello& hello, const JobTicket& ticket);
// Empty: a challenge of a supported version.
inline constexpr size_t kMagicBytes = 4;
bool begins_challenge(const Challenge& challenge);  // checks the first kMagicBytes only
std::string check_challenge(const Challenge& challenge);

Digest caller_proof(const JobTicket& ticket, const Hello& hello, const Challenge& challenge);
Digest listener_proof(const JobTicket& ticket, const Hello& hello, const Challenge& challenge);

struct Keys {
  DirectionKey from_caller;
  DirectionKey from_listener;
};
Keys derive_keys(const JobTicket& ticket, const Hello& hello, const Challenge& challenge);

}  // namespace yoke::net::handshake
