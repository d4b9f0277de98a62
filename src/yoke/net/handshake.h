// The four messages before anything else, as plain bytes, and what is proven with them.
//
//   caller → listener   hello      who calls, for what job and purpose, a fresh nonce
//   listener → caller   challenge  a fresh nonce
//   caller → listener   proof      HMAC over both
//   listener → caller   verdict    one byte; where it says yes, the listener's own HMAC over all of it
//
// A stranger learns nothing but the protocol's version: every reason for a refusal looks the same to him.
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

// Who says so, before any proof. nullopt with `why`: no hello of ours.
std::optional<Introduction> read_hello(const Hello& hello, std::string& why);
// Whether a hello speaks of this ticket's job, generation, protection and rank. Empty: it does.
std::string compare(const Hello& hello, const JobTicket& ticket);
// Empty: a challenge this program understands.
std::string check_challenge(const Challenge& challenge);

Digest caller_proof(const JobTicket& ticket, const Hello& hello, const Challenge& challenge);
Digest listener_proof(const JobTicket& ticket, const Hello& hello, const Challenge& challenge);

struct Keys {
  DirectionKey from_caller;
  DirectionKey from_listener;
};
Keys derive_keys(const JobTicket& ticket, const Hello& hello, const Challenge& challenge);

}  // namespace yoke::net::handshake
