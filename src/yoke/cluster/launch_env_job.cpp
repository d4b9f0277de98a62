// What `yoke run` passes to its ranks beside their identity.
#include <charconv>
#include <cstring>
#include <mutex>

#include "yoke/base/error.h"
#include "yoke/base/fault.h"
#include "yoke/base/log.h"
#include "yoke/cluster/launch_env.h"

namespace yoke::cluster {

std::optional<net::Secret> inherited_secret() {
  static std::mutex mutex;
  static std::optional<net::Secret> kept;
  std::lock_guard lock(mutex);
  if (std::optional<std::string> text = take_out_of_environment("YOKE_JOB_KEY")) {
    kept = net::Secret::from_text(*text);
    ::explicit_bzero(text->data(), text->size());
  }
  return kept;
}

std::optional<net::Protection> inherited_protection() {
  std::optional<std::string> text = environment_variable("YOKE_PROTECTION");
  if (!text) return std::nullopt;
  for (auto protection : {net::Protection::kIntegrity, net::Protection::kEncrypted, net::Protection::kNone}) {
    if (*text == net::to_string(protection)) return protection;
  }
  throw ConfigError("YOKE_PROTECTION={}: expected integrity, encrypted or none. `yoke run` sets it.", *text);
}

std::optional<double> inherited_join_timeout() {
  std::optional<std::string> text = environment_variable("YOKE_JOIN_TIMEOUT");
  if (!text) return std::nullopt;
  double seconds = 0;
  const char* end = text->data() + text->size();
  auto [stop, error] = std::from_chars(text->data(), end, seconds);
  if (error != std::errc() || stop != end || !(seconds > 0 && seconds < 1e7))
    throw ConfigError("YOKE_JOIN_TIMEOUT={}: expected a number of seconds above 0.", *text);
  return seconds;
}

void arm_faults(int rank, int attempt) {
  std::optional<std::string> text = environment_variable("YOKE_FAULT");
  if (!text) return;
  fault::arm(fault::parse(*text), {rank, attempt});
  if (rank <= 0) log::warn("YOKE_FAULT={}: faults are injected into this job", *text);
}

std::optional<std::string> inherited_command() {
  return environment_variable("YOKE_COMMAND");
}

}  // namespace yoke::cluster
